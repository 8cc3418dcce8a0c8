"""Traces: where an exception in an agent's, an environment's or an evaluator's code came from, for who wrote that code.

Guarantees: what is kept of it (`error.txt` of the attempt) is bounded and holds no secret that is known here; each
distinct one is told once a process, with the file, however many attempts fail by it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable

from deskroll.errors import DeskrollError, plain, trace_of
from deskroll.rollout.redaction import masked_text, secrets_of
from deskroll.rollout.spec import Definition

ERROR = "error.txt"
"""The file of an attempt that holds the traceback of its failure."""
CLOSE_ERROR = "close-error.txt"
"""The same of what was not the end of it: of closing the environment."""
_FOLDERS = ("PWD", "OLDPWD")
"""Variables that hold folders, though `pwd` in a name stands for a password elsewhere."""
_LONGEST = 50_000
_MOST_TOLD = 20
_PLACE = re.compile(r'^ *File ".*", line \d+', re.MULTILINE)
_log = logging.getLogger(__name__)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _FOLDERS}


class Traces:
    """One for each spec of a process that runs episodes."""

    def __init__(self, secrets: Iterable[str] = (), *, whole: bool = False) -> None:
        self._secrets = frozenset(secrets) | secrets_of({"variables": _variables()})
        self._whole = whole
        """Whether they are shown on the terminal, and not only where they are."""
        self._told: set[str] = set()

    @classmethod
    def of_spec(cls, definition: Definition, *, whole: bool = False) -> Traces:
        """With the secrets of a spec: its keys, those among its options, and this process's variables."""
        parts = ("env_options", "agent_options", "model", "judge")
        held = {name: definition.spec.get(name) or {} for name in parts} | {"variables": _variables()}
        return cls(secrets_of(held, definition.keys.model, definition.keys.judge), whole=whole)

    def add(self, definition: Definition) -> None:
        """Hide the secrets of this spec, too."""
        self._secrets |= self.of_spec(definition)._secrets

    def hide(self, text: str) -> str:
        """A text without secrets."""
        return masked_text(text, self._secrets)

    def trace(self, error: BaseException) -> str:
        """Where it came from, fit to be kept; empty where its message says all."""
        text = self.hide(trace_of(error))
        if len(text) > _LONGEST:  # the first frames and the last ones; what lies between repeats itself
            text = f"{text[: _LONGEST // 2]}\n... (cut)\n{text[-_LONGEST // 2 :]}"
        return text

    def tell(self, name: str, error: BaseException, trace: str, file: str) -> None:
        """Say where the traceback of an attempt's error is, or show it."""
        what = self.hide(str(error) if isinstance(error, DeskrollError) else f"{type(error).__name__}: {error}")
        if self._whole:
            _log.error("%s: %s\n%s\nkept in %s", name, plain(what), trace.rstrip(), file)
            return
        if isinstance(error, DeskrollError) and error.unforeseen is None and not error.trace:
            return  # raised on purpose: the report has its message, and who wonders finds the file
        places = _PLACE.findall(trace)
        place = f"{places[-1] if places else ''}{what.partition(':')[0]}"
        if place not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(place)
            _log.warning("%s: %s; the traceback is in %s", name, plain(what, 300), file)
