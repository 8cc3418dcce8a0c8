"""OSWorld's rules: lists, conj, options, FAIL, infeasible, postconfig; and who judges what."""

from __future__ import annotations

from typing import Any

import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import check_evaluator, evaluate
from deskroll.errors import EvaluatorError, FailureClass, InputError
from deskroll.types import StopReason, Task
from tests.envs.osworld_evaluate.making import inline, judged, rule

DONE = Ending(stop=StopReason.DONE)
LINES = [b"a\nb\nc\nd\n", b"a\nb\nc\nx\n", b"w\nx\ny\nz\n"]
"""Against the first: 1, 0.75 and 0."""


def several(conj: str | None, *which: int, **more: Any) -> Task:
    conjunction = {} if conj is None else {"conj": conj}
    gold = inline("gold.txt", LINES[0])
    results = [inline("out.txt", LINES[n]) for n in which]
    return judged(["diff_text_file"] * len(which), results, [gold] * len(which), **conjunction, **more)


@pytest.mark.parametrize(
    ("conj", "which", "value"),
    [
        ("and", (0, 0), 1.0), ("and", (0, 1), 0.875), ("and", (0, 2), 0.0), ("and", (2, 1), 0.0), (None, (0, 1), 0.875),
        ("or", (2, 1), 0.75), ("or", (1, 0), 1.0), ("or", (2, 2), 0.0), ("or", (0, 2), 1.0), ("and", (1,), 0.75),
    ],
)  # fmt: skip
async def test_conj(conj: str | None, which: tuple[int, ...], value: float, desktop: GuestDesktop) -> None:
    assert (await evaluate(several(conj, *which), desktop, DONE)).value == value


async def test_parts_behind_the_one_that_decides_are_not_looked_at(desktop: GuestDesktop) -> None:
    broken = {"type": "inline_file", "dest": "x", "base64": "%"}
    gold = inline("gold.txt", LINES[0])
    for conj, first, value in (("and", LINES[2], 0.0), ("or", LINES[0], 1.0)):
        task = judged(["diff_text_file"] * 2, [inline("o", first), broken], [gold, gold], conj=conj)
        assert (await evaluate(task, desktop, DONE)).value == value


async def test_lists_may_be_shorter_and_hold_nothing(desktop: GuestDesktop) -> None:
    text, gold = inline("o", b"One  two"), inline("g", b"one two")
    funcs = ["compare_text_file", "compare_text_file"]
    loose = {"ignore_case": True, "ignore_blanks": True}
    assert (await evaluate(judged(funcs, [text, text], [gold, gold], options=[loose, loose]), desktop, DONE)).value == 1
    task = judged(funcs, [text, text], [gold, text], options=[loose])
    assert (await evaluate(task, desktop, DONE)).value == 1
    task = judged(funcs, [text, text], [text, gold], options=[None, loose])
    assert (await evaluate(task, desktop, DONE)).value == 1


@pytest.mark.parametrize("func", ["infeasible", ["infeasible"]])
async def test_what_cannot_be_done_is_solved_by_saying_so(func: object, desktop: GuestDesktop) -> None:
    task = judged(func)
    assert (await evaluate(task, desktop, Ending(stop=StopReason.FAIL))).value == 1
    assert (await evaluate(task, desktop, DONE)).value == 0


async def test_giving_up_elsewhere_is_0_and_nothing_is_looked_at(desktop: GuestDesktop) -> None:
    score = await evaluate(several("or", 0, 0), desktop, Ending(stop=StopReason.FAIL))
    assert (score.value, score.reason) == (0.0, "the agent gave up")


async def test_postconfig_comes_first(desktop: GuestDesktop) -> None:
    gold = inline("g", b"x")
    good = judged("compare_text_file", gold, gold, postconfig=[{"type": "sleep", "parameters": {"seconds": 0}}])
    assert (await evaluate(good, desktop, DONE)).value == 1
    bad = judged("compare_text_file", gold, gold, postconfig=[{"type": "sleep", "parameters": {}}])
    with pytest.raises(EvaluatorError, match=r"task 't': evaluator.postconfig: .*set-up step 0 \(sleep\)") as caught:
        await evaluate(bad, desktop, DONE)
    assert caught.value.failure is FailureClass.EVALUATOR


@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        ({"func": []}, r"evaluator.func is \[\]"),
        ({"func": [3]}, "evaluator.func"),
        ({"func": "exact_match", "result": "x"}, "evaluator.result is missing, or no object"),
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


def test_what_is_not_installed_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    theirs = judged("compare_videos", {"type": "vm_file", "path": "/x", "dest": "x"}, {"type": "vm_file", "path": "/y"})
    with pytest.raises(InputError, match=r"compare_videos with vm_file with vm_file: .*run: deskroll osworld install"):
        check_evaluator(theirs)
    with pytest.raises(InputError, match="there is no native evaluator for this; set evaluators to auto"):
        check_evaluator(theirs, "native")
    both = judged("exact_match", {"type": "vm_command_line", "command": "x"}, rule(expected="x"))
    check_evaluator(both)
    check_evaluator(both, "native")
    with pytest.raises(InputError, match="run: deskroll osworld install"):
        check_evaluator(both, "upstream")
    ours = judged("check_play_and_exit", {"type": "vlc_config"}, rule(expected_play_and_exit=0))
    check_evaluator(ours, "upstream")
