"""Names of the parts that can be chosen: the eight kinds of plug-in (`plugins.py`), and suites of tasks.

Owns the one table of what deskroll brings along, and the four ways to name a part: its short name in the
table, the name of an entry point in the group `deskroll.<kind>` (plug-ins), a path `package.module:Attribute`, or a
file `folder/file.py:Attribute`.

Nothing is imported before it is asked for. A part whose pip extra is not installed is one clear sentence, and so is a
path that leads nowhere; an import of somebody else's part that fails for any other reason is an error that shows where.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from deskroll.errors import InputError, MissingDependency, did_you_mean
from deskroll.importing import SUFFIX, file_of, import_file, import_module


@dataclass(frozen=True)
class Entry:
    """One part that can be chosen by name."""

    name: str
    target: str
    """Where it is, as `package.module:Attribute`."""
    extra: str | None = None
    """The pip extra that it needs; none where the core is enough."""
    summary: str = ""
    source: str = "built in"
    """Whose it is: the distribution of a plug-in."""


TABLE: Mapping[str, tuple[Entry, ...]] = {
    "provider": (
        Entry(
            "local",
            "deskroll.desktops.providers.local.provider:LocalProvider",
            extra="local",
            summary="embedded desktops on this machine, each in namespaces of its own",
        ),
        Entry(
            "sim",
            "deskroll.desktops.providers.sim.provider:SimProvider",
            summary="simulated desktops, thousands in one process: for dry runs, tests and benchmarks",
        ),
    ),
    "env": (
        Entry("osworld", "deskroll.envs.osworld.env:OSWorldEnv", summary="a desktop: OSWorld's tasks, or your own"),
        Entry("math", "deskroll.envs.math:MathEnv", extra="math", summary="questions with a calculator"),
        Entry("py", "deskroll.envs.python:PythonEnv", extra="py", summary="questions with a Python of their own"),
        Entry("shell", "deskroll.envs.shell:ShellEnv", extra="py", summary="a terminal without a desktop"),
        Entry("web", "deskroll.envs.web:WebEnv", extra="web", summary="questions with web search and pages"),
        Entry("rag", "deskroll.envs.rag:RagEnv", extra="rag", summary="questions about documents of yours"),
    ),
    "agent": (
        Entry("chat", "deskroll.agents.chat:ChatAgent", summary="any chat model that calls tools"),
        Entry("prompt", "deskroll.agents.prompt:PromptAgent", summary="OSWorld's baseline: pyautogui code in a block"),
        Entry("uitars", "deskroll.agents.uitars:UITarsAgent", summary="ByteDance's UI-TARS 1 and 1.5"),
        Entry("qwen", "deskroll.agents.qwen:QwenAgent", summary="Qwen2.5-VL and Qwen3-VL with their computer_use"),
        Entry("claude", "deskroll.agents.claude:ClaudeAgent", summary="Anthropic's models with their computer tool"),
        Entry("adapter", "deskroll.agents.adapter:AdapterAgent", summary="an agent class written for OSWorld"),
        Entry("oracle", "deskroll.agents.oracle:OracleAgent", summary="plays a task's own solution, or a near miss"),
        Entry("random", "deskroll.agents.random:RandomAgent", summary="acts at random, the same on every attempt"),
        Entry("noop", "deskroll.agents.noop:NoopAgent", summary="says at once that it is done"),
    ),
    "model": (
        Entry("openai", "deskroll.models.openai:OpenAIModel", summary="OpenAI's protocol, as most servers speak it"),
        Entry("anthropic", "deskroll.models.anthropic:AnthropicModel", summary="Anthropic's Messages API"),
        Entry("scripted", "deskroll.models.scripted.model:ScriptedModel", summary="answers from a script"),
    ),
    "backend": (
        Entry("process", "deskroll.rollout.backends.process:ProcessBackend", summary="worker processes here"),
        Entry("inline", "deskroll.rollout.backends.inline:InlineBackend", summary="the run's own process: to debug"),
    ),
    "action_space": (
        Entry("computer_13", "deskroll.envs.osworld.spaces:Computer13", summary="OSWorld's actions, by name"),
        Entry("pyautogui", "deskroll.envs.osworld.spaces:Pyautogui", summary="Python code with pyautogui"),
        Entry(
            "claude_computer_use",
            "deskroll.envs.osworld.spaces:ClaudeComputerUse",
            summary="the actions of Anthropic's computer tool",
        ),
    ),
    "observation": (
        Entry("screenshot", "deskroll.envs.osworld.observations:Screenshot", summary="the screen"),
        Entry("a11y_tree", "deskroll.envs.osworld.observations:A11yTree", summary="a table of what is on the screen"),
        Entry("screenshot_a11y_tree", "deskroll.envs.osworld.observations:ScreenshotA11yTree", summary="both of them"),
        Entry(
            "som",
            "deskroll.envs.osworld.observations:SetOfMarks",
            summary="the screen with numbered boxes",
        ),
    ),
    "trainer": (
        Entry(
            "grpo-local",
            "deskroll.train.grpo.trainer:GrpoTrainer",
            summary="GRPO with torch on this machine: CPU or one GPU, all weights or LoRA",
        ),
        Entry("scripted", "deskroll.train.scripted:ScriptedTrainer", summary="takes its time and writes any numbers"),
    ),
    "suite": (
        Entry("desk", "deskroll.suites:DESK", summary="tasks on Debian's own programs, offline, with their solutions"),
    ),
}
"""What deskroll brings along, by kind."""
BASES: Mapping[str, str] = {
    "provider": "deskroll.desktops.providers.base:Provider",
    "env": "deskroll.envs.base:Env",
    "agent": "deskroll.agents.base:Agent",
    "model": "deskroll.models.plugin:ModelPlugin",
    "backend": "deskroll.rollout.backends.base:Backend",
    "action_space": "deskroll.envs.osworld.action_space:ActionSpace",
    "observation": "deskroll.envs.osworld.observation:ObservationType",
    "trainer": "deskroll.train.base:Trainer",
}
"""The class that plug-ins of each kind are made from."""
KINDS = tuple(BASES)
"""The kinds of plug-in; a suite is none: it is a folder of tasks."""


class Registry:
    """Finds parts by name in a table, among plug-ins, or by path."""

    def __init__(self, table: Mapping[str, Iterable[Entry]] = TABLE) -> None:
        self._table = {kind: tuple(entries) for kind, entries in table.items()}

    def entries(self, kind: str) -> list[Entry]:
        """Return every part of a kind: the table's, then the plug-ins' unless the table has the name."""
        own = self._table.get(kind)
        if own is None:
            raise ValueError(f"no kind {kind!r} in the registry; kinds: {', '.join(self._table)}")
        names = {entry.name for entry in own}
        return [*own, *(entry for entry in _plug_ins(kind) if entry.name not in names)]

    def find(self, kind: str, name: str) -> Entry:
        """Return the entry of that name or path; `InputError` lists what there is."""
        if ":" in name:
            return Entry(name, name)
        if name.endswith(SUFFIX):
            raise InputError(f"{kind} {name!r} is a file: say what of it, {name}:Attribute")
        if own := [entry for entry in self._table.get(kind, ()) if entry.name == name]:
            return own[0]  # at once: to look for plug-ins reads the metadata of every package that is installed
        entries = self.entries(kind)
        found = [entry for entry in entries if entry.name == name]
        if not found:
            raise InputError(_unknown(kind, name, [entry.name for entry in entries]))
        if len(found) > 1:
            where = ", ".join(f"{entry.target} ({entry.summary})" for entry in found)
            raise InputError(f"several plug-ins call a {kind} {name!r}: {where}; name one by its path")
        return found[0]

    def load(self, kind: str, name: str) -> object:
        """Import the part of that name or path and return it."""
        entry = self.find(kind, name)
        module_name, _, attribute = entry.target.rpartition(":")
        by_path = entry.name == entry.target
        file = file_of(entry.target) if by_path else None
        if by_path and not _is_path("file" if file else module_name, attribute):
            raise InputError(f"{kind} {name!r} is not a path; write package.module:Attribute, or file.py:Attribute")
        if file is not None:
            part: object = import_file(kind, name, file)
        else:
            part = import_module(kind, name, module_name) if by_path else _import_own(kind, entry, module_name)
        for step in attribute.split("."):
            if by_path and not hasattr(part, step):
                raise InputError(f"{kind} {name!r}: {module_name} has no {attribute}{did_you_mean(step, dir(part))}")
            part = getattr(part, step)
        return part


def _import_own(kind: str, entry: Entry, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if entry.extra is not None and _is_absent_library(error.name):
            raise MissingDependency(
                f"{kind} {entry.name!r} needs the module {error.name!r}: pip install 'deskroll[{entry.extra}]'"
            ) from error
        raise


def _plug_ins(kind: str) -> list[Entry]:
    # Imported here because it is slow, and most starts of the command line need no registry.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = entry_points(group=f"deskroll.{kind}")
    return [
        Entry(
            point.name,
            f"{point.module}:{point.attr}",
            summary=f"plug-in of {point.dist.name}" if point.dist else "",
            source=f"{point.dist.name} {point.dist.version}" if point.dist else "a plug-in",
        )
        for point in sorted(found, key=lambda point: (point.name, point.value))
    ]


def _unknown(kind: str, name: str, names: list[str]) -> str:
    known = f"known: {', '.join(names)}" if names else "none is known"
    paths = "a path package.module:Attribute and a file my_file.py:Attribute work, too"
    return f"there is no {kind} {name!r}{did_you_mean(name, names)}; {known}; {paths}"


def _is_path(module_name: str, attribute: str) -> bool:
    return all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")])


def _is_absent_library(missing: str | None) -> bool:
    """Say whether a third-party package is not there at all; one that lacks a submodule is a bug instead."""
    top = (missing or "").partition(".")[0]
    if not top or top == "deskroll" or top in sys.stdlib_module_names:
        return False
    return importlib.util.find_spec(top) is None
