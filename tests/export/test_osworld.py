"""OSWorld's result tree, read as OSWorld's own script reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from deskroll.actions import Answer, Click, Done, Fail, KeyDown, Script, Typing, Wait
from deskroll.errors import InputError
from deskroll.export import Chosen, Exported, Output, export_folders
from deskroll.export.osworld import OSWorldLayout, written
from deskroll.export.output import Mark
from deskroll.report.results import Results
from deskroll.store import Run
from tests.report.runs import make_run


def exported(root: Path, output: Path) -> Exported:
    run = Run.open(root)
    layout = OSWorldLayout.of(run, "computer_13", "screenshot", "qwen-vl")
    with Output.open(output, Mark(run_id=run.info.run_id, to="osworld")) as place:
        return export_folders(Chosen.of(run), layout, place, "osworld", lambda done, total: None)


def get_result(action_space: str, model: str, observation_type: str, result_dir: Path) -> dict[str, list[float]]:
    """What OSWorld's show_result.py collects, by domain: every folder that has a result.txt, read as a number."""
    found: dict[str, list[float]] = defaultdict(list)
    target = result_dir / action_space / observation_type / model
    for domain in target.iterdir():
        for example in domain.iterdir() if domain.is_dir() else ():
            if example.is_dir() and "result.txt" in {each.name for each in example.iterdir()}:
                found[domain.name].append(float((example / "result.txt").read_text()))
    return found


def test_osworlds_own_reader_comes_to_the_same_as_the_report(full_run: Path, tmp_path: Path) -> None:
    done = exported(full_run, tmp_path / "out")
    summary = Results.read(full_run).summary()
    assert (done.episodes, done.written, done.problems) == (56, 56, ())
    found: dict[str, list[float]] = defaultdict(list)
    for sample in ("sample_0", "sample_1"):
        for domain, scores in get_result("computer_13", "qwen-vl", "screenshot", tmp_path / "out" / sample).items():
            found[domain] += scores
    every = [score for scores in found.values() for score in scores]
    assert len(every) == summary.overall.scored
    assert sum(every) / len(every) == pytest.approx(summary.overall.mean_score.value)
    by_domain = {each.name: each.scored for each in summary.domains}
    assert {name: len(scores) for name, scores in found.items()} == by_domain


async def test_one_sample_is_one_tree_and_lines_are_the_runners(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", tasks=4, samples=1, failures=())
    exported(tmp_path / "run", tmp_path / "out")
    run = Run.open(tmp_path / "run")
    for episode in run.outcomes():
        attempt = run.attempt(episode.key, episode.attempt)
        folder = tmp_path / "out" / "computer_13" / "screenshot" / "qwen-vl" / episode.domain / episode.key.task
        lines = [json.loads(line) for line in (folder / "traj.jsonl").read_text().splitlines()]
        steps = attempt.steps()
        assert [line["step_num"] for line in lines] == [step.index + 1 for step in steps for _ in step.actions]
        assert set(lines[0]) == {"step_num", "action_timestamp", "action", "response", "reward", "done", "info",
                                 "screenshot_file"}  # fmt: skip
        assert lines[0]["action"]["action_type"] == "CLICK"
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
        assert [line["action_timestamp"] for line in lines] == sorted(line["action_timestamp"] for line in lines)
        for line in lines:
            step = steps[line["step_num"] - 1]
            assert line["screenshot_file"] == f"step_{line['step_num']}_{line['action_timestamp']}.png"
            assert (folder / line["screenshot_file"]).read_bytes() == attempt.image(step.screen)


def test_hostile_names_stay_inside(hostile_run: Path, tmp_path: Path) -> None:
    exported(hostile_run, tmp_path / "out")
    folders = [path.parent for path in (tmp_path / "out").rglob("traj.jsonl")]
    assert len(folders) == 4
    assert all(len(folder.relative_to(tmp_path / "out").parts) == 5 for folder in folders)
    assert all(part.isascii() and part.isprintable() for folder in folders for part in folder.parts)


async def test_damaged_attempts_are_told_and_left_out(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", tasks=3, samples=1, failures=())
    broken = sorted((tmp_path / "run").rglob("steps.jsonl"))[0]
    for screen in (broken.parent / "screens").iterdir():
        screen.unlink()
    done = exported(tmp_path / "run", tmp_path / "out")
    assert (done.episodes, done.written, len(done.problems)) == (3, 2, 1)
    assert "screens/" in done.problems[0]
    assert len(list((tmp_path / "out").rglob("result.txt"))) == 2


async def test_a_run_without_outcomes_is_refused(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", tasks=1, samples=1, leave=1)
    with pytest.raises(InputError, match="nothing to export"):
        Chosen.of(Run.open(tmp_path / "run"))


def test_actions_are_written_in_the_runs_own_space() -> None:
    click = Click(x=3, y=4)
    assert written(click, "computer_13") == {
        "action_type": "CLICK", "parameters": {"button": "left", "x": 3, "y": 4, "num_clicks": 1},
    }  # fmt: skip
    assert "pyautogui.click(" in str(written(click, "pyautogui"))
    assert written(click, "claude_computer_use") == {"action": "left_click", "coordinate": [3, 4]}
    assert [written(each, "pyautogui") for each in (Done(), Fail(), Wait(), Answer(text="7"))] == [
        "DONE", "FAIL", "WAIT", "DONE",
    ]  # fmt: skip
    assert written(Script(code="for i in range(3): pass"), "pyautogui") == "for i in range(3): pass"
    assert written(KeyDown(key="a"), "claude_computer_use") == {"type": "KEY_DOWN", "key": "a"}
    assert isinstance(written(Typing(text="x"), "some-plug-in"), dict)
