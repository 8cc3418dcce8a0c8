"""An episode is found by what a person names, also where a task's id looks like something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.store import AttemptWriter, RunStore
from deskroll.store.finding import Named, find_attempt
from deskroll.store.journal import Failed, Planned, Sealed, Started
from deskroll.types import EpisodeKey
from tests.store.records import episode, info, key, lost

ODD = ("q", "q#1", "q#1#2", "a/0/b/0", "b", "a/0/b/0#1", "eval/0/b/0", "#7", "note", "notes")


async def make_run(root: Path, *keys: EpisodeKey) -> str:
    """A run with two attempts of each episode; the second one counts."""
    async with RunStore.create(root, info()) as store:
        places = dict.fromkeys((of.phase, of.round, of.task) for of in keys)
        store.write(*(Planned(phase=phase, round=n, task=task, samples=2) for phase, n, task in places))
        for of in keys:
            for each in (lost(of, 1), episode(of, 2)):
                store.write(Started(key=of, attempt=each.attempt, epoch=store.epoch))
                async with AttemptWriter(store.storage, of, each.attempt) as writer:
                    await writer.seal(each)
                store.write((Failed if each.attempt == 1 else Sealed)(episode=each, epoch=store.epoch))
    return str(root)


@pytest.fixture
async def odd(tmp_path: Path) -> str:
    return await make_run(tmp_path / "run", *(key(task) for task in ODD))


@pytest.mark.parametrize("task", ODD)
async def test_every_task_is_found_by_its_whole_id(odd: str, task: str) -> None:
    assert find_attempt(odd, task) == (key(task), 2)
    assert find_attempt(odd, task, attempt=1) == (key(task), 1)


@pytest.mark.parametrize("task", [task for task in ODD if task != "b"])
async def test_every_task_is_found_by_its_whole_name(odd: str, task: str) -> None:
    assert find_attempt(odd, f"eval/0/{task}/0") == (key(task), 2)
    assert find_attempt(odd, f"eval/0/{task}/0#1") == (key(task), 1)


async def test_an_attempt_is_found_behind_an_id(odd: str) -> None:
    assert find_attempt(odd, "note#1") == (key("note"), 1)
    assert find_attempt(odd, "q#1#1") == (key("q#1"), 1)
    assert find_attempt(odd, "q#2") == (key("q"), 2)
    assert find_attempt(odd, "#7#1") == (key("#7"), 1)
    assert find_attempt(odd, "q#1") == (key("q#1"), 2), "the whole id comes first"
    assert find_attempt(odd, "q", attempt=1) == (key("q"), 1)


async def test_what_contradicts_itself_means_nothing(tmp_path: Path) -> None:
    root = await make_run(tmp_path / "run", key("note"), key("note", 1))
    with pytest.raises(InputError, match="has no episode"):
        find_attempt(root, "eval/0/note/0", sample=1)
    with pytest.raises(InputError, match="has no episode"):
        find_attempt(root, "eval/0/note/0#1", attempt=2)
    assert find_attempt(root, "eval/0/note/0", sample=0) == (key("note"), 2)
    assert find_attempt(root, "note", sample=1, attempt=1) == (key("note", 1), 1)


async def test_what_may_mean_several_is_listed(tmp_path: Path) -> None:
    root = await make_run(tmp_path / "run", key("a/0/b/0"), key("b", phase="a"), key("bee"))
    assert find_attempt(root, "a/0/b/0") == (key("a/0/b/0"), 2)
    with pytest.raises(InputError, match=r"has 2 episodes of sample 0 \(a/0/b/0, b\): say which task"):
        find_attempt(root, "a/0/b/0#1")
    assert find_attempt(root, "b", attempt=1) == (key("b", phase="a"), 1)
    assert find_attempt(root, "be#1") == (key("bee"), 1), "its first characters will do"


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("", [Named()]),
        ("a/b", [Named(task="a/b")]),
        ("c#", [Named(task="c#")]),
        ("c#1", [Named(task="c#1"), Named(task="c", attempt=1)]),
        (
            "eval/0/a/b/3#12",
            [
                Named(task="eval/0/a/b/3#12"),
                Named(task="eval/0/a/b/3", attempt=12),
                Named(task="a/b", sample=3, attempt=12, phase="eval", round=0),
            ],
        ),
    ],
)
def test_readings(text: str, readings: list[Named]) -> None:
    assert list(Named.readings(text)) == readings
