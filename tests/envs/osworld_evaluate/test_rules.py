"""OSWorld's rules: lists, conj, options, FAIL, infeasible, postconfig; and who judges what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import Evaluators, check_evaluator, evaluate, require_evaluator
from deskroll.envs.osworld.evaluate.choice import choose, is_osworlds
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext
from deskroll.errors import EvaluatorError, FailureClass, InputError
from deskroll.tasks import load_tasks, parse_task
from deskroll.types import StopReason, Task
from tests.envs.osworld_evaluate.making import inline, judged, rule
from tests.tasks.shared import OSWORLD, needs_osworld

DONE = Ending(stop=StopReason.DONE)
CHECKS = """
def same(found):
    return found


def equal(found, wanted, loose=False):
    return found.lower() == wanted.lower() if loose else found == wanted
"""


@pytest.fixture
def context(tmp_path: Path) -> SetupContext:
    """What the tasks of these tests are judged with: functions of their own."""
    (tmp_path / "checks.py").write_text(CHECKS)
    return SetupContext("t", OSWorldSettings(), tmp_path)


def value(given: object) -> dict[str, Any]:
    return {"type": "rule", "rules": given}


def several(conj: str | None, *values: float) -> Task:
    conjunction = {} if conj is None else {"conj": conj}
    return judged(["file:checks.py:same"] * len(values), [value(each) for each in values], **conjunction)


@pytest.mark.parametrize(
    ("conj", "values", "whole"),
    [
        ("and", (1, 1), 1.0), ("and", (1, 0.75), 0.875), ("and", (1, 0), 0.0), ("and", (0, 0.75), 0.0),
        (None, (1, 0.75), 0.875), ("or", (0, 0.75), 0.75), ("or", (0.75, 1), 1.0), ("or", (0, 0), 0.0),
        ("or", (1, 0), 1.0), ("and", (0.75,), 0.75),
    ],
)  # fmt: skip
async def test_conj(
    conj: str | None, values: tuple[float, ...], whole: float, desktop: GuestDesktop, context: SetupContext
) -> None:
    assert (await evaluate(several(conj, *values), desktop, DONE, context)).value == whole


async def test_parts_behind_the_one_that_decides_are_not_looked_at(desktop: GuestDesktop) -> None:
    broken = {"type": "inline_file", "dest": "x", "base64": "%"}
    for conj, first, whole in (("and", b"x", 0.0), ("or", b"a", 1.0)):
        task = judged(["exact_match"] * 2, [inline("o", first), broken], [rule(expected="a")] * 2, conj=conj)
        assert (await evaluate(task, desktop, DONE)).value == whole


async def test_lists_may_be_shorter_and_hold_nothing(desktop: GuestDesktop, context: SetupContext) -> None:
    funcs, loose = ["file:checks.py:equal"] * 2, {"loose": True}
    big, small = value("ONE"), value("one")
    for expected, options in (([small, small], [loose, loose]), ([small, big], [loose]), ([big, small], [None, loose])):
        task = judged(funcs, [big, big], expected, options=options)
        assert (await evaluate(task, desktop, DONE, context)).value == 1
    assert (await evaluate(judged(funcs, [big, big], [big, small]), desktop, DONE, context)).value == 0


@pytest.mark.parametrize("func", ["infeasible", ["infeasible"]])
async def test_what_cannot_be_done_is_solved_by_saying_so(func: object, desktop: GuestDesktop) -> None:
    task = judged(func)
    assert (await evaluate(task, desktop, Ending(stop=StopReason.FAIL))).value == 1
    assert (await evaluate(task, desktop, DONE)).value == 0


async def test_giving_up_elsewhere_is_0_and_nothing_is_looked_at(desktop: GuestDesktop) -> None:
    score = await evaluate(several("or", 1, 1), desktop, Ending(stop=StopReason.FAIL))
    assert (score.value, score.reason) == (0.0, "the agent gave up")


async def test_postconfig_comes_first(desktop: GuestDesktop) -> None:
    found, wanted = inline("g", b"x"), rule(expected="x")
    good = judged("exact_match", found, wanted, postconfig=[{"type": "sleep", "parameters": {"seconds": 0}}])
    assert (await evaluate(good, desktop, DONE)).value == 1
    bad = judged("exact_match", found, wanted, postconfig=[{"type": "sleep", "parameters": {}}])
    with pytest.raises(EvaluatorError, match=r"task 't': evaluator.postconfig: .*set-up step 0 \(sleep\)") as caught:
        await evaluate(bad, desktop, DONE)
    assert caught.value.failure is FailureClass.EVALUATOR


@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        ({"func": []}, r"evaluator.func is \[\]"),
        ({"func": [3]}, "evaluator.func"),
        ({"func": "exact_match", "result": "x"}, "evaluator.result is missing or not an object"),
        ({"func": "exact_match", "result": {"path": "/x"}}, "evaluator.result.type is None"),
        ({"func": "exact_match", "conj": "xor"}, "evaluator.conj is 'xor'; allowed: and, or"),
        ({"func": "exact_match", "expected": [{"type": "rule"}] * 2}, "evaluator.expected is a list of 2"),
        ({"func": ["exact_match"], "options": [{}, {}]}, "evaluator.options has 2 entries for 1 metrics"),
        ({"func": "exact_match", "postconfig": 3}, "evaluator.postconfig must be a list"),
        ({"func": "moonshine"}, "there is no evaluator 'moonshine'; known: exact_match, infeasible"),
        ({"func": "exact_match", "result": {"type": "moon"}}, "there is no getter 'moon'; known: vm_command_line"),
        ({"func": "compare_videos", "result": inline("a", b"")}, "compare_videos with inline_file: some of this is"),
    ],
)  # fmt: skip
def test_what_is_written_wrongly_is_refused_before_anything_runs(evaluator: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_evaluator(judged(**evaluator))


COMMAND = {"type": "vm_command_line", "command": "x"}
FILE = {"type": "vm_file", "path": "/x", "dest": "x"}
OSWORLDS = {"snapshot": "os", "source": "https://example.org", "trajectory": "trajectories/"}
BOTH = ("exact_match", COMMAND, rule(expected="x"))
THEIRS = ("compare_videos", FILE, FILE)
OURS = ("check_play_and_exit", {"type": "vlc_config"}, rule(expected_play_and_exit=0))
READER = ("exact_match", {"type": "docx_paragraphs", "path": "/x"}, rule(expected=[]))


def osworlds(*evaluator: Any) -> Task:
    return msgspec.structs.replace(judged(*evaluator), metadata=OSWORLDS)


@pytest.mark.parametrize(
    ("task", "auto", "native", "upstream"),
    [
        (judged(*BOTH), "native", "native", "upstream"),
        (osworlds(*BOTH), "upstream", "native", "upstream"),
        (judged(*THEIRS), "upstream", None, "upstream"),
        (osworlds(*THEIRS), "upstream", None, "upstream"),
        (judged(*OURS), "native", "native", "native"),
        (osworlds(*OURS), "native", "native", "native"),
        (osworlds(*READER), "native", "native", "native"),
        (osworlds("file:checks.py:same", FILE), "own", "own", "own"),
        (osworlds("infeasible"), "native", "native", "native"),
    ],
)
def test_who_judges(task: Task, auto: str, native: str | None, upstream: str) -> None:
    """None: nobody does, and that is said before anything runs."""
    for whose, judge in (("auto", auto), ("native", native), ("upstream", upstream)):
        if judge is not None:
            assert choose(task, Evaluators(whose)) == [judge], whose
            continue
        with pytest.raises(InputError, match="there is no native evaluator for this; set evaluators to auto"):
            choose(task, Evaluators(whose))


def test_each_part_has_its_own_judge() -> None:
    lists = [list(each) for each in zip(BOTH, THEIRS, OURS, strict=True)]
    assert choose(osworlds(*lists)) == ["upstream", "upstream", "native"]
    assert choose(judged(*lists)) == ["native", "upstream", "native"]


@needs_osworld
def test_every_task_file_of_osworlds_is_known_as_one() -> None:
    files = [*(OSWORLD / "examples").rglob("*.json"), *(OSWORLD / "examples_windows").rglob("*.json")]
    theirs = [parse_task(json.loads(file.read_text()), file.name) for file in files]
    assert len(theirs) == 369 + 49
    assert all(map(is_osworlds, theirs))


@pytest.mark.parametrize("path", ["suite:desk", "data/osworld_examples.jsonl", "benchmarks/osworld_tasks.jsonl"])
def test_our_own_tasks_are_none_of_osworlds(path: str) -> None:
    given = Path(path) if path.startswith("suite:") else Path(__file__).parents[3] / path
    judges = [choose(task) for task in load_tasks(given) if "func" in task.evaluator]
    assert judges
    assert {judge for each in judges for judge in each} == {"native"}


def test_what_is_not_installed_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    install = "OSWorld's own evaluators are not installed; run: deskroll osworld install"
    for task in (judged(*THEIRS), osworlds(*THEIRS)):
        with pytest.raises(InputError, match=f"^compare_videos with vm_file with vm_file: {install}$"):
            require_evaluator(task)
        check_evaluator(task)  # it exists
    with pytest.raises(InputError, match=f"{install}, or set evaluators to native$"):
        require_evaluator(osworlds(*BOTH))
    require_evaluator(osworlds(*BOTH), "native")
    require_evaluator(judged(*BOTH))
    with pytest.raises(InputError, match=install):
        require_evaluator(judged(*BOTH), "upstream")
    require_evaluator(osworlds(*OURS), "upstream")
