"""tinker-cookbook's own loop over our episodes: with failures, under its strategies, cancelled, in other processes."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tinker
import tinker_cookbook
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.rollout_limits import RolloutLimits
from tinker_cookbook.rl.rollout_runner import run_rollout
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure, RolloutStrategy
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup
from tinker_cookbook.tokenizer_utils import get_tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from deskroll.errors import InputError
from deskroll.store import Run
from deskroll.train.driven import EpisodeUnscored, RuntimeGone, drive
from deskroll.train.tinker import DeskrollDatasetBuilder, DeskrollGroupBuilder, Tokens
from deskroll.train.tinker.env import DeskrollEnv
from deskroll.types import Task
from tests.train.adapters.parts import leased, make_tokenizer, sims, until_none_is_leased, write_config, write_tasks
from tests.train.test_driven import config_of

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[3]
WAIT, DONE, FAIL = (f"```\n{word}\n```<|im_end|>" for word in ("WAIT", "DONE", "FAIL"))


class Sampler(TokenCompleter):
    """Says now this, now that, and remembers every token of it."""

    def __init__(self, model: str, seed: int = 0, says: tuple[str, ...] = (WAIT, WAIT, DONE, FAIL)) -> None:
        self._tokenizer = get_tokenizer(model)
        self._dice = random.Random(seed)
        self._says = says
        self.gave: list[tuple[list[int], list[int]]] = []
        """Each prompt with what it was answered."""

    async def __call__(
        self, model_input: tinker.ModelInput, stop: list[str] | list[int], *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        await asyncio.sleep(0)
        said = self._tokenizer.encode(self._dice.choice(self._says), add_special_tokens=False)
        assert stop and said[-1] in stop
        self.gave.append((model_input.to_ints(), said))
        return TokensWithLogprobs(tokens=said, maybe_logprobs=[-self._dice.random() for _ in said])


class Stuck(Sampler):
    """Begins to sample and never ends."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.asked = asyncio.Event()
        self.number = 0

    async def __call__(self, *args: object, **others: object) -> TokensWithLogprobs:
        self.number += 1
        if self.number == 4:
            self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(str(make_tokenizer(tmp_path_factory.mktemp("tokenizer"))), "qwen3_instruct")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write_tasks(tmp_path, 20)
    yield tmp_path


def trained_on(group: TrajectoryGroup) -> Counter[tuple[int, ...]]:
    """The runs of tokens that tinker's own data processing gives an advantage to."""
    found: Counter[tuple[int, ...]] = Counter()
    for trajectory in group.trajectories_G:
        for datum in trajectory_to_data(trajectory, 1.0):
            targets = datum.loss_fn_inputs["target_tokens"].tolist()
            mask = datum.loss_fn_inputs["mask"].tolist()
            pairs = itertools.groupby(zip(targets, mask, strict=True), lambda pair: pair[1] > 0)
            found.update(tuple(token for token, _ in run) for counts, run in pairs if counts)
    return found


def stored(root: Path) -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Of each scored episode, by its name: its prompts and what was sampled, as they are kept."""
    (place,) = (root / "results").iterdir()
    run = Run.open(place)
    found = {}
    for outcome in run.outcomes():
        if outcome.points is not None:
            steps = run.attempt(outcome.key, outcome.attempt).steps()
            said = [step.completion for step in steps if step.completion is not None]
            name = f"{outcome.key.phase}/{outcome.key.round}/{outcome.key.task}/{outcome.key.sample}#{outcome.attempt}"
            found[name] = [(each.prompt_token_ids or (), each.token_ids or ()) for each in said]
    return found


STRATEGIES = [FailFast(), RetryOnFailure(max_retries=6), MinViableGroup(min_successful=2, max_retries=1)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: type(each).__name__)
async def test_twenty_groups_of_four_with_failures(folder: Path, tokens: Tokens, strategy: RolloutStrategy) -> None:
    async with sims(folder, step_crashes="0.06", reset_fails="0.05", seed="3") as (at, pool):
        _, config, tasks = write_config(folder, pool=at)
        sampler = Sampler(tokens.model)

        async def one(task: object) -> TrajectoryGroup | Exception:
            builder = DeskrollGroupBuilder(config, task, tokens, group_size=4)
            try:
                return await do_group_rollout(pickle.loads(pickle.dumps(builder)), sampler, strategy)
            except (EpisodeUnscored, AllTrajectoriesFailedError) as error:
                return error

        ended = await asyncio.gather(*(one(task) for task in tasks))
        await until_none_is_leased(pool)
        groups = [each for each in ended if isinstance(each, TrajectoryGroup)]
        (await drive(config)).close()
    errors = [error for group in groups for error in group.rollout_errors]
    failed = len(ended) - len(groups)
    print(
        f"{type(strategy).__name__}: {len(groups)} groups, {failed} failed, {len(errors)} rollouts failed in the rest"
    )
    assert groups and (errors or failed), "the desktops were to fail"
    assert {error.error_type for error in errors} <= {"EpisodeUnscored"}
    check_groups(groups, strategy)
    check_tokens(folder, groups, sampler)


def check_groups(groups: list[TrajectoryGroup], strategy: RolloutStrategy) -> None:
    sizes = {len(group.trajectories_G) for group in groups}
    assert sizes == {4} if not isinstance(strategy, MinViableGroup) else sizes <= {2, 3, 4}
    for group in groups:
        assert group.final_rewards_G == [0.0] * len(group.trajectories_G)
        for trajectory, reward in zip(group.trajectories_G, group.get_total_rewards(), strict=True):
            *before, last = trajectory.transitions
            assert [each.reward for each in before] == [0.0] * len(before)
            assert (last.reward, last.episode_done) == (reward, True)
            assert trajectory.stop_reason in ("completed", "max_turns")


def check_tokens(folder: Path, groups: list[TrajectoryGroup], sampler: Sampler) -> None:
    """What tinker trains on is what was sampled, and what is kept of the episode."""
    kept = stored(folder)
    gave = Counter((tuple(prompt), tuple(said)) for prompt, said in sampler.gave)
    for group in groups:
        for trajectory in group.trajectories_G:
            turns = [(tuple(each.ob.to_ints()), tuple(each.ac.tokens)) for each in trajectory.transitions]
            name = str(trajectory.transitions[-1].logs["episode"])
            assert kept[name] == turns, name
            gave.subtract(turns)
        assert trained_on(group) == Counter(
            tuple(each.ac.tokens) for trajectory in group.trajectories_G for each in trajectory.transitions
        )
    assert min(gave.values()) >= 0, "something was trained on that was not given"


async def test_cancelled_groups_give_their_desktops_back(folder: Path, tokens: Tokens) -> None:
    async with sims(folder, desktops=4) as (at, pool):
        _, config, tasks = write_config(folder, pool=at)
        stuck = Stuck(tokens.model)
        groups = [DeskrollGroupBuilder(config, task, tokens, group_size=4) for task in tasks[:3]]
        work = [asyncio.create_task(do_group_rollout(group, stuck)) for group in groups]
        await stuck.asked.wait()
        assert await leased(pool) == 4
        for each in work:
            each.cancel()
        for each in work:
            with pytest.raises(asyncio.CancelledError):
                await each
        # At once, and not some time later: cleanup has waited for it.
        assert await leased(pool) == 0
        (await drive(config)).close()


class Unclosed(DeskrollEnv):
    """Cannot be ended."""

    def __init__(self, group: DeskrollGroupBuilder, error: Exception) -> None:
        super().__init__(group)
        self._error = error

    async def close(self) -> None:
        raise self._error


async def test_an_episode_that_cannot_be_ended_is_told(
    folder: Path, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    config, task = config_of(folder / "runs"), Task(id="a", instruction="do it")
    group = DeskrollGroupBuilder(config, task, tokens)
    group._made += [Unclosed(group, RuntimeGone("it has ended")), Unclosed(group, OSError("no more files"))]
    await group.cleanup()
    assert [each.getMessage() for each in caplog.records] == [
        "an episode of task 'a' could not be ended: OSError: no more files"
    ]


async def test_a_rollout_that_takes_too_long_is_ended(folder: Path, tokens: Tokens) -> None:
    async with sims(folder, desktops=4) as (at, pool):
        _, config, tasks = write_config(folder, pool=at)
        group = DeskrollGroupBuilder(config, tasks[0], tokens, group_size=4)
        slow = MinViableGroup(min_successful=1, max_retries=0, per_rollout_timeout=3.0)
        with pytest.raises(AllTrajectoriesFailedError):
            await do_group_rollout(group, Stuck(tokens.model), slow)
        assert await leased(pool) == 0
        made = await DeskrollGroupBuilder(config, tasks[1], tokens, group_size=1).make_envs()
        limits = RolloutLimits(rollout_timeout_seconds=3.0)
        trajectory = await run_rollout(Stuck(tokens.model), made[0], limits=limits)
        assert trajectory.stop_reason == "rollout_timeout"
        await made[0].close()
        assert await leased(pool) == 0
        (await drive(config)).close()


async def test_prompts_that_are_too_long(folder: Path, tokens: Tokens) -> None:
    async with sims(folder) as (at, _):
        _, config, tasks = write_config(folder, pool=at)
        sampler = Sampler(tokens.model, says=(WAIT,))
        at_once = DeskrollGroupBuilder(config, tasks[0], tokens, group_size=2, max_prompt_tokens=100)
        group = await do_group_rollout(at_once, sampler)
        assert not sampler.gave and group.get_total_rewards() == [0.0, 0.0]
        assert {each.stop_reason for each in group.trajectories_G} == {"context_overflow"}
        first = await do_group_rollout(DeskrollGroupBuilder(config, tasks[1], tokens, group_size=1), sampler)
        long = len(sampler.gave[2][0])
        later = DeskrollGroupBuilder(config, tasks[1], tokens, group_size=1, max_prompt_tokens=long - 1)
        (cut,) = (await do_group_rollout(later, sampler)).trajectories_G
        assert len(first.trajectories_G[0].transitions) == 6
        assert (len(cut.transitions), cut.stop_reason) == (2, "context_overflow")
        (await drive(config)).close()


async def test_the_dataset(folder: Path, tokens: Tokens) -> None:
    async with sims(folder, desktops=2) as (at, _):
        path, config, _ = write_config(folder, pool=at, limit=5)
        build = DeskrollDatasetBuilder(
            config=str(path), model_name_for_tokenizer=tokens.model, renderer_name=tokens.renderer, batch_size=2,
            group_size=2, passes=2, eval_tasks=str(folder / "tasks.jsonl"),
        )  # fmt: skip
        train, test = await build()
        assert test is not None and (len(train), len(test)) == (5, 3)
        names = [[each.task.id for each in train.get_batch(n)] for n in range(5)]
        flat = list(itertools.chain.from_iterable(names))
        assert sorted(flat[:5]) == sorted(flat[5:]) == [f"t{n}" for n in range(5)] and flat[:5] != flat[5:]
        (held_out, _) = test.get_batch(0)
        group = await do_group_rollout(held_out, Sampler(tokens.model, says=(FAIL,)))
        assert group.get_total_rewards() == [1.0] and held_out.logging_tags() == ["deskroll", "odd"]
        assert str(group.trajectories_G[0].transitions[-1].logs["episode"]).startswith("eval/")
        (await drive(config)).close()


async def test_what_is_wrong_is_told_before_anything_is_sampled(folder: Path, tokens: Tokens) -> None:
    path, _, _ = write_config(folder, provider="sim")
    path.write_text(path.read_text() + "num_vmz: 3\n")
    build = DeskrollDatasetBuilder(
        config=str(path), model_name_for_tokenizer=tokens.model, renderer_name=tokens.renderer, batch_size=2
    )
    with pytest.raises(InputError, match="num_vmz"):
        await build()


async def test_calls_of_tools_come_back_as_they_were_written(folder: Path, tokens: Tokens) -> None:
    """The chat agent with a calculator: its tools are in the prompt, and what is called is called."""
    (folder / "tasks.jsonl").write_text('{"id": "sum", "instruction": "What is 6*7?", "answer": "42"}\n')
    _, config, (task,) = write_config(folder, env="math", agent="chat", env_options={}, provider="sim")
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expressions": ["6*7"]}}\n</tool_call><|im_end|>'
    broken = "<tool_call>\n{no JSON}\n</tool_call><|im_end|>"

    class InTurn(Sampler):
        async def __call__(self, model_input: tinker.ModelInput, *args: object, **others: object) -> TokensWithLogprobs:
            said = (broken, call, "42<|im_end|>")[len(self.gave)]
            given = self._tokenizer.encode(said, add_special_tokens=False)
            self.gave.append((model_input.to_ints(), given))
            return TokensWithLogprobs(tokens=given, maybe_logprobs=[0.0] * len(given))

    sampler = InTurn(tokens.model)
    group = await do_group_rollout(DeskrollGroupBuilder(config, task, tokens, group_size=1), sampler)
    (await drive(config)).close()
    assert group.get_total_rewards() == [1.0]
    prompts = [get_tokenizer(tokens.model).decode(prompt) for prompt, _ in sampler.gave]
    assert '"calculator"' in prompts[0] and "error:" in prompts[1] and "42" in prompts[2]


class InPictures(Sampler):
    """Remembers how many tokens each picture has that it is shown."""

    async def __call__(self, model_input: tinker.ModelInput, *args: object, **others: object) -> TokensWithLogprobs:
        pictures = [each for each in model_input.chunks if not isinstance(each, tinker.EncodedTextChunk)]
        assert all(isinstance(each, tinker.types.ImageChunk) for each in pictures)
        self.gave.append(([each.expected_tokens or 0 for each in pictures], []))
        said = self._tokenizer.encode(WAIT if len(self.gave) < 3 else FAIL, add_special_tokens=False)
        return TokensWithLogprobs(tokens=said, maybe_logprobs=[0.0] * len(said))


async def test_pictures_are_where_the_agent_showed_them(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    model = make_tokenizer(tmp_path_factory.mktemp("sees"))
    Qwen2VLImageProcessorPil().save_pretrained(str(model))
    seeing = Tokens(str(model), "qwen3_vl_instruct", images=True)
    _, config, tasks = write_config(
        folder, provider="sim", env_options={"observation_type": "screenshot"}, agent_options={"max_images": 2}
    )
    sampler = InPictures(seeing.model)
    group = await do_group_rollout(DeskrollGroupBuilder(config, tasks[0], seeing, group_size=1), sampler)
    (await drive(config)).close()
    assert group.get_total_rewards() == [1.0]
    assert [len(pictures) for pictures, _ in sampler.gave] == [1, 2, 2]
    assert min(min(pictures) for pictures, _ in sampler.gave) > 100, "each has its tokens"


def in_another_process(pickled: bytes, model: str) -> list[float]:
    """As an executor of tinker's runs a group: unpickled, in a new event loop."""
    group = asyncio.run(do_group_rollout(pickle.loads(pickled), Sampler(model, says=(FAIL,))))
    return list(group.get_total_rewards())


async def test_groups_in_other_processes_share_a_pool(folder: Path, tokens: Tokens) -> None:
    async with sims(folder, desktops=3) as (at, pool):
        _, config, tasks = write_config(folder, pool=at)
        groups = [pickle.dumps(DeskrollGroupBuilder(config, task, tokens, group_size=3)) for task in tasks[:4]]
        context, loop = multiprocessing.get_context("spawn"), asyncio.get_running_loop()
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            calls = [loop.run_in_executor(executor, in_another_process, each, tokens.model) for each in groups]
            assert await asyncio.gather(*calls) == [[1.0] * 3] * 4
            assert await leased(pool) == 0
    places = list((folder / "results").iterdir())
    assert sum(len(list(Run.open(place).outcomes())) for place in places) == 12
    assert all(Run.open(place).holder() is None for place in places), "their runtimes ended with their processes"


def test_the_pages_example_is_a_config_of_tinkers() -> None:
    (block,) = re.findall(r"```python\n(from tinker_cookbook.*?)```", (ROOT / "docs/rl.md").read_text(), re.DOTALL)
    made: dict[str, Any] = {}
    exec(block, made)
    assert isinstance(made["config"].dataset_builder, DeskrollDatasetBuilder)


def test_the_installed_package_is_found_from_this_checkout() -> None:
    """`tinker_cookbook/` here has no `__init__.py`: a package that is installed comes first."""
    assert (ROOT / "tinker_cookbook").is_dir()
    script = "import tinker_cookbook, tinker_cookbook.rl.types as t; print(tinker_cookbook.__file__, t.__file__)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert str(ROOT / "tinker_cookbook") not in run.stdout
    assert run.stdout.split()[0] == tinker_cookbook.__file__
