"""Where tasks come from: which ones a source gives, the same ones every time, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.errors import InputError
from deskroll.suites import DESK, small_tasks
from deskroll.tasks import load_tasks
from deskroll.tasks.sources import (
    SourceType,
    SplitType,
    TaskSourceConfig,
    category_of,
    difficulty_of,
    load_source,
    load_sources,
    read_sources,
    read_split,
)
from deskroll.types import Task

DEMO = load_tasks("suite:desk")


def ids(**fields: Any) -> list[str]:
    return [task.id for task in load_source(TaskSourceConfig(**fields)).tasks]


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Ten tasks of two categories; half of them say how hard they are."""
    path = tmp_path / "mine.jsonl"
    rows = [
        {
            "id": f"t{n}",
            "question": "?",
            "answer": "1",
            "category": "ab"[n % 2],
            **({"difficulty": "easy"} if n < 5 else {}),
        }
        for n in range(10)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


# --- the demo tasks --------------------------------------------------------------------------------------


def test_the_suite_is_divided_without_rest() -> None:
    split = read_split(DESK)
    assert not split[SplitType.TRAIN] & split[SplitType.EVAL]
    assert split[SplitType.TRAIN] | split[SplitType.EVAL] == {task.id for task in DEMO}
    assert (len(split[SplitType.TRAIN]), len(split[SplitType.EVAL])) == (30, 20)
    assert json.loads((DESK / "split.json").read_text()).keys() == {"train", "eval"}


def test_evaluation_needs_only_small_programs_and_both_sides_are_mixed() -> None:
    of = {task.id: task for task in DEMO}
    evaluation = [of[each] for each in ids(source_type="demo_eval")]
    assert small_tasks(evaluation) == evaluation
    for side in ("demo_training", "demo_eval"):
        chosen = [of[each] for each in ids(source_type=side)]
        assert len({category_of(task) for task in chosen}) >= 6
        assert {difficulty_of(task) for task in chosen} == {"easy", "medium", "hard"}


def length(task: Task) -> int:
    """How many actions the reference solution has."""
    turns = [turn if isinstance(turn, list) else [turn] for turn in task.metadata["solution"]]
    return sum(isinstance(each, str) or "action_type" in each for turn in turns for each in turn)


@pytest.mark.parametrize("task", DEMO, ids=lambda task: task.id)
def test_a_task_says_its_category_and_how_hard_it_is(task: Task) -> None:
    assert task.metadata["category"] == task.domain
    actions = length(task)
    assert task.metadata["difficulty"] == ("easy" if actions <= 5 else "medium" if actions <= 9 else "hard")


def test_demo_all_is_all_of_it_in_its_order() -> None:
    assert ids(source_type="demo_all") == ids(source_type="suite", suite="desk") == [task.id for task in DEMO]
    assert load_source(TaskSourceConfig(source_type="demo_all")).folder == DESK


def test_the_demo_evaluation_of_the_documents() -> None:
    assert len(ids(source_type="demo_eval", limit=20)) == 20


# --- which of them ---------------------------------------------------------------------------------------


def test_single_tasks_in_the_order_they_are_named(file: str) -> None:
    assert ids(source_type="ids", task_ids=["files-move-l", "editor-write-note"]) == [
        "files-move-largest", "editor-write-note",
    ]  # fmt: skip
    assert ids(source_type="ids", task_ids=["t7", "t1"], file_path=file) == ["t7", "t1"]


def test_filters_then_split_then_limit(file: str) -> None:
    assert ids(source_type="file", file_path=file, category="a") == ["t0", "t2", "t4", "t6", "t8"]
    assert ids(source_type="file", file_path=file, category="a", difficulty="easy") == ["t0", "t2", "t4"]
    train = ids(source_type="file", file_path=file, split_type="train")
    assert len(train) == 8
    limited = ids(source_type="file", file_path=file, split_type="train", limit=3)
    assert len(limited) == 3
    assert set(limited) <= set(train)
    assert ids(source_type="file", file_path=file, limit=99) == [f"t{n}" for n in range(10)]


@pytest.fixture(scope="module")
def forty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty tasks, quickly read."""
    path = tmp_path_factory.mktemp("forty") / "t.jsonl"
    path.write_text("\n".join(json.dumps({"id": f"{n:02}", "question": "?"}) for n in range(40)))
    return str(path)


@given(seed=st.integers(0, 2**32), ratio=st.floats(0.1, 0.9), limit=st.integers(1, 10))
def test_a_split_is_whole_and_the_same_every_time(forty: str, seed: int, ratio: float, limit: int) -> None:
    fields: dict[str, Any] = {"source_type": "file", "file_path": forty, "seed": seed, "train_ratio": ratio}
    train, evaluation = (ids(**fields, split_type=side) for side in SplitType)
    assert sorted(train + evaluation) == [f"{n:02}" for n in range(40)]
    assert train == ids(**fields, split_type="train")
    few = ids(**fields, split_type="train", limit=limit)
    order = {each: n for n, each in enumerate(train)}
    assert len(few) == min(limit, len(train))
    assert few == sorted(few, key=order.__getitem__)


def test_another_seed_gives_other_tasks() -> None:
    drawn = Counter(tuple(ids(source_type="demo_eval", limit=10, seed=seed)) for seed in range(8))
    assert len(drawn) > 5


def test_paths_hold_from_everywhere(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert TaskSourceConfig(source_type="file", file_path="mine.jsonl").file_path == file


# --- instructions alone ----------------------------------------------------------------------------------


def test_instructions_become_tasks_that_a_model_judges() -> None:
    source = TaskSourceConfig(
        source_type="custom",
        custom_tasks=["Open the clock", {"instruction": "Say hi", "id": "hi", "expected": "A greeting shows"}],
    )
    found = load_source(source)
    first, second = found.tasks
    assert found.folder is None
    assert first.id.startswith("custom-")
    assert (first.instruction, first.evaluator) == ("Open the clock", {"func": "llm_judgement"})
    assert (second.id, second.evaluator["options"]) == ("hi", {"expected": "A greeting shows"})
    for task in found.tasks:
        OSWorldEnv.check_task(task)
        assert OSWorldEnv.is_judged(task)


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"source_type": "demo"}, "source_type: input should be 'demo_training', 'demo_eval', 'demo_all'"),
        ({}, "source_type: it is required, and missing"),
        ({"source_type": "demo_all", "limit": 0}, "limit: input should be greater than or equal to 1"),
        ({"source_type": "demo_all", "train_ratio": 1.0}, "train_ratio: input should be less than 1"),
        ({"source_type": "demo_all", "split_type": "test"}, "split_type: input should be 'train' or 'eval'"),
        ({"source_type": "demo_all", "lmit": 2}, "lmit: there is no such field; did you mean limit?"),
        ({"source_type": "ids"}, "source_type ids needs task_ids, which is missing or empty"),
        ({"source_type": "file"}, "source_type file needs file_path"),
        ({"source_type": "suite"}, "source_type suite needs suite"),
        ({"source_type": "custom", "custom_tasks": []}, "source_type custom needs custom_tasks"),
        (
            {"source_type": "demo_eval", "task_ids": ["a"]},
            "task_ids is of no use with source_type demo_eval; it belongs to ids",
        ),
        ({"source_type": "ids", "task_ids": ["a"], "suite": "desk", "file_path": "b"}, "both set"),
        ({"source_type": "custom", "custom_tasks": [""]}, "custom_tasks.0"),
        (
            {"source_type": "ids", "task_ids": ["nope"]},
            "suite:desk: there is no task 'nope'; there are: editor-capital-heading",
        ),
        ({"source_type": "ids", "task_ids": ["files-m"]}, "2 tasks' ids begin with 'files-m'"),
        ({"source_type": "ids", "task_ids": ["files-del", "files-delete-oldest"]}, "names 'files-delete-oldest' twice"),
        ({"source_type": "suite", "suite": "dsk"}, "there is no suite 'dsk'; there are: desk"),
        ({"source_type": "file", "file_path": "/no/t.jsonl"}, "/no/t.jsonl: there is no such file"),
        (
            {"source_type": "demo_all", "category": "edtor"},
            "there is no category 'edtor'; did you mean editor?; there are: browser (6)",
        ),
        (
            {"source_type": "demo_all", "difficulty": "huge"},
            "there is no difficulty 'huge'; there are: easy (16), hard (18)",
        ),
        ({"source_type": "demo_all", "category": "infeasible", "difficulty": "hard"}, "that category has: easy (4)"),
        (
            {"source_type": "ids", "task_ids": ["editor-write-note"], "split_type": "eval"},
            "of 1 tasks leaves none for eval",
        ),
        ({"source_type": "demo_all", "split_type": "eval", "train_ratio": 0.001}, "leaves none for train"),
        ({"source_type": "custom", "custom_tasks": ["a", "a"]}, r"custom_tasks[1]: id 'custom-"),
        (
            {"source_type": "custom", "custom_tasks": ["a"], "difficulty": "easy"},
            "there is no difficulty 'easy'; there are: none",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_what_there_is(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_source(TaskSourceConfig(**fields))
    assert words in str(caught.value)


def test_a_task_of_two_sources() -> None:
    sources = [TaskSourceConfig(source_type="demo_eval"), TaskSourceConfig(source_type="demo_all", limit=50)]
    with pytest.raises(InputError, match=r"task '.*' comes twice, from demo_eval and from demo_all; take it out"):
        load_sources(sources)
    both = load_sources([sources[0], TaskSourceConfig(source_type="demo_training")])
    assert [len(each.tasks) for each in both] == [20, 30]


# --- as people write them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"source_type": "demo_eval", "limit": 20}', {"source_type": "demo_eval", "limit": 20}),
        ('[{"source_type": "demo_eval"}]', [{"source_type": "demo_eval"}]),
        ("demo_training", {"source_type": "demo_training"}),
        ("mine.jsonl", {"source_type": SourceType.FILE, "file_path": "mine.jsonl"}),
        ("suite:desk", {"source_type": SourceType.FILE, "file_path": "suite:desk"}),
    ],
)
def test_a_text_is_json_or_a_name_or_a_file(text: str, found: object) -> None:
    assert read_sources(text, "--tasks") == found


def test_json_that_is_none() -> None:
    with pytest.raises(InputError, match="--tasks:1: it is not valid JSON, at column 17"):
        read_sources('{"source_type": }', "--tasks")
