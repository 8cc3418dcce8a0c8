"""OSWorld's baseline notation: what is to be done stands in blocks between ``` marks, or is one of WAIT, DONE and FAIL.

Several blocks are performed in their order. A word counts where it stands alone, without a block, or is the last block:
before others it is part of the talk. What stands before the first block is the thought. What a block means (code, or
JSON) is its reader's affair. Guarantees: any text gives what the reader makes of its blocks, or an `ActionError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from deskroll.actions import WORDS, Action, Reading
from deskroll.errors import ActionError

Reader = Callable[[str], Sequence[Action]]
_FENCE = "```"
_LANGUAGES = {"python": ("python", "python3", "py", "code"), "json": ("json", "json5", "code")}
_HEAD = re.compile(r"[ \t]*(?P<alone>[A-Za-z0-9]*)[ \t]*(?:\n|$)|[ \t]*(?P<before>[A-Za-z0-9]+)[ \t]+(?=\S)")


def parse(text: str, read: Reader, language: str = "python") -> Reading:
    """What a reply says and does; its blocks are in `language` (`python` or `json`)."""
    if (word := WORDS.get(text.strip())) is not None:
        return Reading(actions=(word(),))
    thought, *blocks = text.split(_FENCE)
    sources = [_source(block, language) for block in blocks[::2]]  # what stands between blocks is talk
    sources = [source for source in sources if source.strip()]
    if not sources:
        raise ActionError(f"there is no code in the reply; {_hint(language)}")
    *before, last = sources
    actions: list[Action] = []
    for source in [*(source for source in before if source.strip() not in WORDS), last]:
        word = WORDS.get(source.strip())
        actions += [word()] if word is not None else read(source)
    return Reading(thought=thought.strip(), actions=tuple(actions))


def objects(source: str) -> list[object]:
    """The actions of a JSON block: one object, a list of them, or one a line."""
    try:
        found: object = msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            return [msgspec.json.decode(line) for line in source.splitlines() if line.strip()]
        except (msgspec.DecodeError, RecursionError):
            raise ActionError(f"the block is not valid JSON: {error}; {_hint('json')}") from None
    return found if isinstance(found, list) else [found]


def _hint(language: str) -> str:
    return f"write it, or one of WAIT, DONE, FAIL, inside a block that begins with ```{language} and ends with ```"


def _source(block: str, language: str) -> str:
    head = _HEAD.match(block)
    if head is None:
        return block.rstrip()
    name = head["alone"] or head["before"] or ""
    if name.lower() in ("", *_LANGUAGES[language]):
        return block[head.end() :].rstrip()
    if head["before"] or name in WORDS:  # the block begins with what it holds
        return block.rstrip()
    raise ActionError(f"a block is of {name[:40]}; {_hint(language)}")
