"""OSWorld's result tree, as its own runner leaves it and its own scripts read it.

    <dir>/<action_space>/<observation_type>/<model>/<domain>/<id>/
      traj.jsonl               one line an action
      step_<n>_<stamp>.png     the screen after the n-th turn
      result.txt               the score; not there where the attempt was not scored
      recording.mp4            where the run kept one

A run with several samples of a task (or phases, or rounds) becomes several such trees, since the layout has room for
one result a task: `<dir>/sample_0/...`, `<dir>/<phase>_<round>_sample_0/...`. Names that are no safe parts of a path
are escaped as the store does. The runner looks after every action, deskroll after every turn: the lines of one turn
share its screen, and a turn that only says DONE shows the screen before it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deskroll.actions import Action, Answer, Done, Fail, Script, ToolCall, Wait, claude, computer13, pyautogui_code
from deskroll.errors import ActionError
from deskroll.export.episodes import beginning, step_ends
from deskroll.store import AttemptReader, Run, paths
from deskroll.types import Episode, Stage, Step

NO_DOMAIN = "other"
"""The domain of tasks that have none."""
_AFTER = (Stage.ACT, Stage.SETTLE, Stage.STORE)
Encode = Callable[[Action], object]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of traj.jsonl; the fields are those of OSWorld's runner."""

    step_num: int
    action_timestamp: str
    action: object
    response: str
    reward: float
    done: bool
    info: dict[str, object]
    screenshot_file: str | None


@dataclass(frozen=True)
class OSWorldLayout:
    """The tree of one run."""

    action_space: str
    observation_type: str
    model: str
    grouped: str = ""
    """What tells several trees apart: empty (there is one), `sample`, or `round`."""

    @classmethod
    def of(cls, run: Run, action_space: str, observation_type: str, model: str) -> OSWorldLayout:
        """The layout for a run, by its plan: it stays the same however much of it is done."""
        rounds = {(each.phase, each.round) for each in run.index.planned}
        samples = max((each.samples for each in run.index.planned), default=1)
        grouped = "round" if len(rounds) > 1 else "sample" if samples > 1 else ""
        return cls(action_space, observation_type, model, grouped)

    def place(self, episode: Episode) -> str:
        """Where its folder is: in the one tree, or in that of its sample."""
        key = episode.key
        names = [self.action_space, self.observation_type, self.model, episode.domain or NO_DOMAIN, key.task]
        tree = {"": "", "sample": f"sample_{key.sample}/"}.get(
            self.grouped, f"{paths.escape(key.phase)}_{key.round}_sample_{key.sample}/"
        )
        return tree + "/".join(map(paths.escape, names))

    def fill(self, episode: Episode, attempt: AttemptReader, folder: Path) -> bool:
        """Write the files of one episode, the result last."""
        steps = attempt.steps()
        files = attempt.files()
        seen = beginning(steps, files)
        with (folder / "traj.jsonl").open("wb") as lines:
            for step, ended in zip(steps, step_ends(episode, steps), strict=True):
                seen = step.screen or seen
                stamp = _stamp(ended - sum(step.seconds.get(part, 0.0) for part in _AFTER))
                shown = f"step_{step.index + 1}_{stamp}{Path(seen).suffix}" if seen and step.actions else None
                if shown is not None:
                    (folder / shown).write_bytes(attempt.image(seen))
                for line in self._lines(step, stamp, shown):
                    lines.write(msgspec.json.encode(line) + b"\n")
        if paths.RECORDING in files:
            (folder / paths.RECORDING).write_bytes(attempt.read(paths.RECORDING))
        if episode.score.value is not None:
            (folder / "result.txt").write_text(f"{float(episode.score.value)}\n", encoding="utf-8")
        return True

    def _lines(self, step: Step, stamp: str, shown: str | None) -> list[Line]:
        response = (step.completion.text if step.completion else "") or step.thought
        return [
            Line(
                step_num=step.index + 1, action_timestamp=stamp, action=written(action, self.action_space),
                response=response, reward=0, done=isinstance(action, Done | Fail | Answer), info=_info(action),
                screenshot_file=shown,
            )
            for action in step.actions
        ]  # fmt: skip


def _pyautogui(action: Action) -> object:
    return pyautogui_code.encode([action])


def _claude(action: Action) -> object:
    inputs = claude.encode(action)
    return inputs[0] if len(inputs) == 1 else inputs


_ENCODERS: Mapping[str, Encode] = {
    "computer_13": computer13.encode,
    "pyautogui": _pyautogui,
    "claude_computer_use": _claude,
}


def written(action: Action, action_space: str) -> object:
    """An action as OSWorld's agents write it; what a space has no word for stands as the record that is stored."""
    match action:
        case Done() | Answer():
            return "DONE"
        case Fail():
            return "FAIL"
        case Wait() if action == Wait():
            return "WAIT"
        case Script(code=code):
            return code
        case ToolCall():
            return msgspec.to_builtins(action)
    try:
        return _ENCODERS.get(action_space, computer13.encode)(action)
    except ActionError:
        return msgspec.to_builtins(action)


def _info(action: Action) -> dict[str, object]:
    match action:
        case Done():
            return {"done": True}
        case Fail():
            return {"fail": True}
        case Answer(text=text):
            return {"done": True, "answer": text}
    return {}


def _stamp(at: float) -> str:
    """As the runner writes it, in UTC."""
    return datetime.datetime.fromtimestamp(max(at, 0.0), datetime.UTC).strftime("%Y%m%d@%H%M%S%f")
