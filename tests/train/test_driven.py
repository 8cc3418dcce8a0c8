"""Episodes that another loop drives: their outcomes, those that it gives up, and what is left when the program ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.pool.slot import State
from deskroll.desktops.providers import make_provider
from deskroll.desktops.service import PoolService
from deskroll.errors import ConfigError, DeskrollError, FailureKind, InputError
from deskroll.host.listen import Listen
from deskroll.models.handed import HANDED_KIND, HandedModel
from deskroll.models.settings import ModelSettings
from deskroll.report.results import Results
from deskroll.rollout.config import Resources, RunConfig
from deskroll.rollout.runtime import Runtime
from deskroll.store import Run
from deskroll.store.journal import GroupClosed
from deskroll.train.driven import EVAL, DrivenEpisode, DrivenEpisodes, EpisodeUnscored, drive
from deskroll.types import Completion, GroupEnd, Task
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
FAST = {"boot": "0.01", "reset": "0.01", "step": "0"}
TASK = Task(id="a", instruction="do it", evaluator={"func": "infeasible"})
SUM = Task(id="sum", instruction="What is 6*7?", answer="42", env="math")


def uploading(name: str) -> Task:
    """A task that names a file of its folder."""
    upload = {"type": "download", "parameters": {"files": [{"url": f"{name}.txt", "path": "/tmp/it.txt"}]}}
    return Task(id=name, instruction="do it", evaluator={"func": "infeasible"}, setup=(upload,))


def config_of(folder: Path, **settings: Any) -> RunConfig:
    given = {
        "env": "osworld", "agent": "prompt", "env_options": {"observation_type": "a11y_tree"}, "provider": "sim",
        "provider_options": FAST, "num_vms": 2, "num_rollouts": 16, "output_dir": str(folder), **settings,
    }  # fmt: skip
    return RunConfig.model_validate(given)


@contextmanager
def closing(driven: DrivenEpisodes) -> Iterator[DrivenEpisodes]:
    try:
        yield driven
    finally:
        driven.close()


async def play(episode: DrivenEpisode, *words: str) -> list[bytes]:
    """Answer with these words in turn, then with the last; the last message of each request."""
    asked: list[bytes] = []
    while (request := await episode.request()) is not None:
        word = words[min(len(asked), len(words) - 1)]
        asked.append(request.messages[-1])
        episode.answer(Completion(text=f"```\n{word}\n```", token_ids=(len(asked),)))
    return asked


async def test_the_outcome_is_the_score(tmp_path: Path) -> None:
    with closing(await drive(config_of(tmp_path))) as driven:
        right, wrong = driven.begin(TASK), driven.begin(TASK, EVAL)
        asked, _ = await asyncio.gather(play(right, "WAIT", "FAIL"), play(wrong, "DONE"))
        assert len(asked) == 2
        assert [(await each.outcome()).points for each in (right, wrong)] == [1.0, 0.0]
        said = [step.completion for step in driven.attempt(await right.outcome()).steps()]
        assert [each.token_ids for each in said if each] == [(1,), (2,)]
    found = {(each.key.phase, each.points) for each in Run.open(driven.folder).outcomes()}
    assert found == {("train", 1.0), ("eval", 0.0)}


async def test_one_runtime_for_the_same_settings_whatever_loop_asks(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with closing(await drive(config)) as driven:
        assert await drive(config_of(tmp_path)) is driven

        def elsewhere() -> float | None:
            async def one() -> float | None:
                episode = (await drive(config)).begin(TASK)
                await play(episode, "FAIL")
                return (await episode.outcome()).points

            return asyncio.run(one())

        assert await asyncio.to_thread(elsewhere) == 1.0
    with closing(await drive(config)) as again:
        assert again is not driven and again.folder != driven.folder


async def leased(pool: Pool) -> int:
    return (await pool.status()).states[State.LEASED]


@pytest.mark.parametrize("when", ["at once", "while it waits for a desktop", "while it is asked", "when it has ended"])
async def test_who_is_abandoned_has_ended(tmp_path: Path, when: str) -> None:
    at = f"unix:{tmp_path / 'pool'}"
    pool = Pool(make_provider("sim", FAST), PoolConfig(num_vms=1))
    async with pool, PoolService(pool, Listen.parse(at)):
        with closing(await drive(config_of(tmp_path / "runs", pool=at))) as driven:
            first = driven.begin(TASK)
            if when != "at once":
                assert await first.request() is not None
            second = driven.begin(TASK)
            if when == "when it has ended":
                first.answer(Completion(text="```\nFAIL\n```"))
                assert await first.request() is None
                assert (await first.outcome()).points == 1.0
                assert await second.request() is not None
            await second.abandon()
            await first.abandon()
            assert await leased(pool) == 0
            with pytest.raises(EpisodeUnscored, match="does not want it any more"):
                await second.outcome()
            assert await second.request() is None
    run = Run.open(driven.folder)
    given_up = [each for each in run.outcomes() if each.given_up]
    assert {each.failure.kind for each in given_up if each.failure} == {FailureKind.GIVEN_UP}
    assert len(given_up) == (1 if when == "when it has ended" else 2)
    assert [each.end for each in run.records(GroupClosed)].count(GroupEnd.FAILED) == len(given_up)
    assert Results.read(driven.folder)


async def test_what_infrastructure_spoils_is_not_tried_again(tmp_path: Path) -> None:
    options = {**FAST, "step_crashes": "1"}
    with closing(await drive(config_of(tmp_path, provider_options=options))) as driven:
        episode = driven.begin(TASK)
        await play(episode, "WAIT")
        with pytest.raises(EpisodeUnscored, match="train/0/a/0: desktop"):
            await episode.outcome()
    assert len(list(Run.open(driven.folder).outcomes())) == 1


async def test_a_task_that_cannot_be_run_fails_its_own_episode_alone(tmp_path: Path) -> None:
    with closing(await drive(config_of(tmp_path))) as driven:
        live = [driven.begin(TASK), driven.begin(TASK)]
        assert all([await each.request() is not None for each in live])
        bad = driven.begin(Task(id="bad", instruction="do it", env="nowhere"))
        assert await bad.request() is None
        with pytest.raises(InputError, match="nowhere"):
            await bad.outcome()
        live.append(driven.begin(TASK))
        for each in live[:2]:
            each.answer(Completion(text="```\nFAIL\n```"))
        await asyncio.gather(*(play(each, "FAIL") for each in live))
        assert [(await each.outcome()).points for each in live] == [1.0, 1.0, 1.0]


async def test_nothing_is_expected_of_episodes_that_have_ended(tmp_path: Path) -> None:
    with closing(await drive(config_of(tmp_path, num_rollouts=1))) as driven:
        first, waiting = driven.begin(TASK), driven.begin(TASK)
        assert await first.request() is not None
        given_up = asyncio.create_task(waiting.abandon())  # before an attempt of it is begun
        first.answer(Completion(text="```\nFAIL\n```"))
        await asyncio.gather(play(first, "FAIL"), given_up)
        bad = [driven.begin(Task(id="bad", instruction="do it", env="nowhere")), driven.begin(TASK, "x" * 101)]
        for each in bad:
            assert await each.request() is None
            with pytest.raises(InputError):
                await each.outcome()
        assert driven._model._expected == {}


async def test_the_files_of_a_task_are_looked_for_in_its_own_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    with closing(await drive(config_of(tmp_path / "runs"))) as driven:
        episodes = [driven.begin(uploading(name), folder=str(tmp_path / name)) for name in ("a", "b", "a")]
        await asyncio.gather(*(play(each, "FAIL") for each in episodes))
        assert [(await each.outcome()).points for each in episodes] == [1.0, 1.0, 1.0]
        assert [each.key.phase for each in episodes] == ["train", "train-2", "train"]
        lost = driven.begin(uploading("a"), folder=str(tmp_path / "b"))
        with pytest.raises(InputError, match=r"a\.txt"):
            await lost.outcome()


async def test_a_judge_is_another_model(tmp_path: Path) -> None:
    with closing(await drive(config_of(tmp_path, agent="chat", env_options={}))) as driven:
        episode = driven.begin(SUM)
        request = await episode.request()
        assert request is not None and [each.name for each in request.tools] == ["calculator"]
        episode.answer(Completion(text="42"))
        assert await episode.request() is None
        assert (await episode.outcome()).points == 1.0


async def test_settings_that_cannot_be_had_are_raised_where_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeskrollError):
        await drive(config_of(tmp_path / "file"))


async def test_a_run_of_a_chosen_name_is_refused_for_it_would_be_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run_id is 'mine'.*Leave run_id out"):
        await drive(config_of(tmp_path / "runs", run_id="mine"))
    assert not (tmp_path / "runs").exists()


async def test_when_it_is_closed_whoever_waits_is_told(tmp_path: Path) -> None:
    driven = await drive(config_of(tmp_path))
    episode = driven.begin(TASK)
    assert await episode.request() is not None
    waiting = asyncio.create_task(episode.request())
    await asyncio.to_thread(driven.close)
    assert await waiting is None
    with pytest.raises(DeskrollError, match="has ended"):
        await episode.outcome()
    with pytest.raises(DeskrollError, match="has ended"):
        driven.begin(TASK)


def test_at_the_end_of_the_program_all_of_it_is_closed(tmp_path: Path) -> None:
    script = f"""
import asyncio
from pathlib import Path
from tests.train.test_driven import TASK, config_of
from deskroll.train.driven import drive

async def main():
    driven = await drive(config_of(Path({str(tmp_path)!r})))
    await driven.begin(TASK).request()
    print(driven.folder)

asyncio.run(main())
"""
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert Run.open(run.stdout.strip()).holder() is None


async def test_a_model_that_is_an_object_is_asked_in_this_process_alone(tmp_path: Path) -> None:
    model = HandedModel(ModelSettings(kind=HANDED_KIND))
    with pytest.raises(ConfigError, match="set inline"):
        async with Runtime.open(Resources(backend="process"), store=tmp_path / "run", model=model):
            pass
