"""Press the named button: tasks, an environment without a desktop, and an agent that plays both it and real windows.

A task names eight buttons, the columns that they stand in, and the one to press. `ButtonsEnv` shows them as a table, as
an accessibility tree has them, and knows which of them a click hits. With env osworld the same task opens a real window
with these buttons (yad): the table comes from the desktop, the click is a real one, and what was pressed is read from a
file. `PickAgent` shows its model the names with numbers, in the order in which people read, and clicks the number that
it replies.

    python buttons.py FOLDER --seed 1         writes train.jsonl and eval.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from words import EVAL_NAMES, NUMBERS, PRESS, TRAIN_NAMES

import deskroll
from deskroll.actions import Action, Click, Done
from deskroll.agents import AgentContext
from deskroll.config import Settings
from deskroll.envs import Ending, Env, EnvContext, TurnResult
from deskroll.envs.osworld.elements import Element, table
from deskroll.errors import InputError
from deskroll.models.messages import Message
from deskroll.types import Decision, Observation, Score, Sent, StopReason, Tool

WIDTH, HEIGHT = 90, 40
"""Of a button without a window, in pixels."""
_PLACES = re.compile(r"push-button\t(\w+)\t.*\((\d+), (\d+)\)\t\((\d+), (\d+)\)")
"""A line of the table: name, left, top, width, height."""


def grid(task: deskroll.Task) -> list[Element]:
    """The buttons of a task, column by column, as yad lays them out."""
    names, columns = task.metadata["buttons"], task.metadata["columns"]
    rows = -(-len(names) // columns)
    return [
        Element(
            tag="push-button", name=name, text='""', x=n // rows * WIDTH, y=n % rows * HEIGHT, width=WIDTH,
            height=HEIGHT,
        )
        for n, name in enumerate(names)
    ]  # fmt: skip


class ButtonsEnv(Env):
    """The table of a window's buttons, without the window. One click ends it."""

    def __init__(self, task: deskroll.Task, settings: Settings, context: EnvContext) -> None:
        super().__init__(task, settings, context)
        self.pressed = ""

    @classmethod
    def offered(cls, settings: Settings) -> Sequence[Tool]:
        """None: its agent clicks."""
        return ()

    @classmethod
    def check_task(cls, task: deskroll.Task) -> None:
        """It needs buttons."""
        if not {"buttons", "columns", "press"} <= task.metadata.keys():
            raise InputError(f"task {task.id!r} has no buttons: make tasks with buttons.py")

    async def reset(self) -> Observation:
        """Show the table."""
        return Observation(instruction=self.task.instruction, accessibility_tree=table(grid(self.task)))

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        """Press what is clicked."""
        for action in actions:
            if isinstance(action, Click) and action.x is not None and action.y is not None:
                self.pressed = next((each.name for each in grid(self.task) if is_inside(each, action.x, action.y)), "")
        return TurnResult(observation=Observation(), stop=StopReason.DONE)

    async def score(self, ending: Ending) -> Score:
        """Whether it was the right one."""
        wanted, pressed = self.task.metadata["press"], self.pressed or "nothing"
        return Score(value=float(pressed == wanted), reason=f"pressed {pressed}, wanted {wanted}")


def is_inside(element: Element, x: int, y: int) -> bool:
    """Whether a pixel belongs to it."""
    return 0 <= x - element.x < element.width and 0 <= y - element.y < element.height


class PickAgent(deskroll.Agent):
    """Says what there is to press, with numbers, and clicks the number that the model replies: one turn."""

    def __init__(self, context: AgentContext, settings: Settings) -> None:
        super().__init__(context, settings)

    async def act(self, observation: Observation) -> Decision:
        """Ask once."""
        buttons = read_table(observation.accessibility_tree or "")
        lines = [f"{name} {number}" for number, (name, _) in zip(NUMBERS, buttons, strict=False)]
        question = Message.user("\n".join([*lines, observation.instruction]))
        self.context.log.message(question.stored)
        completion = await self.context.model.complete([question.sent])
        self.context.log.message(Message.assistant(completion).stored)
        number = completion.text.strip()
        decision = Decision(thought=number, completion=completion, sent=Sent(messages=1))
        if number not in NUMBERS[: len(buttons)]:
            why = f"the reply {number!r} is no number of a button"
            return msgspec.structs.replace(decision, problem=why, gave_up=why)
        _, (x, y) = buttons[int(number) - 1]
        return msgspec.structs.replace(decision, actions=(Click(x=x, y=y), Done()))


def read_table(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Names of buttons and their centres, line by line from the top, as people read."""
    found = [(name, *map(int, numbers)) for name, *numbers in _PLACES.findall(text)]
    found.sort(key=lambda each: (each[2], each[1]))
    return [(name, (x + width // 2, y + height // 2)) for name, x, y, width, height in found]


def make_task(dice: random.Random, id_: str, names: Sequence[str]) -> dict[str, object]:
    """A task in deskroll's own form, for both environments: what they need beside the buttons is for desktops."""
    buttons, columns = dice.sample(names, len(NUMBERS)), dice.randint(1, 4)
    wanted = dice.choice(buttons)
    window = ["yad", "--form", f"--columns={columns}", "--no-buttons", "--title=Buttons"]
    for name in buttons:
        window += [f"--field={name}:FBTN", f"sh -c 'echo {name} > ~/pressed'"]
    return {
        "id": id_, "instruction": f"{PRESS} {wanted}", "buttons": buttons, "columns": columns, "press": wanted,
        "config": [
            {"type": "launch", "parameters": {"command": window}},
            {"type": "activate_window", "parameters": {"window_name": "Buttons"}},
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": "cat ~/pressed 2>/dev/null || true", "shell": True},
            "expected": {"type": "rule", "rules": {"expected": f"{wanted}\n"}},
        },
    }  # fmt: skip


def write_tasks(folder: Path, seed: int, *, train: int = 512, evaluate: int = 128) -> None:
    """Tasks to train on, and tasks to evaluate on: of these no button's name was trained on."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)  # noqa: S311  (no secret)
    for name, count, names in (("train", train, TRAIN_NAMES), ("eval", evaluate, EVAL_NAMES)):
        lines = [json.dumps(make_task(dice, f"{name}-{number:03}", names)) for number in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("folder", type=Path, help="where to write them")
    read.add_argument("--seed", type=int, default=1)
    given = read.parse_args()
    write_tasks(given.folder, given.seed)
