"""One training run from beginning to end: opened, shown, interrupted, summed up.

Guarantees: the trainer has loaded the weights, and the servers answer, before anything is planned; whatever ends it, no
server, trainer, worker or desktop is left, and it can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console

from deskroll.conduct.console import stderr
from deskroll.conduct.interrupts import Interrupts
from deskroll.conduct.log_lines import LogLines
from deskroll.conduct.program import program
from deskroll.conduct.view import Progress
from deskroll.errors import DeskrollError
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.report.words import counted
from deskroll.rollout.main_thread import outlasting_main_thread
from deskroll.rollout.openfiles import check_open_files, raise_open_files, tell_open_files
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store.training import EvalRecord, StepRecord
from deskroll.train.base import TrainerContext
from deskroll.train.checkpoints import Checkpoints
from deskroll.train.config import CLIConfig
from deskroll.train.derived import start_checkpoint
from deskroll.train.folder import keep_settings, refuse_changed
from deskroll.train.log import TrainLog
from deskroll.train.loop import Servers, TrainLoop, TrainPlan
from deskroll.train.preparing import Prepared
from deskroll.train.process import TrainerProcess
from deskroll.train.servers import OwnPool, PoolElsewhere, Unrefreshed
from deskroll.train.staleness import Pace
from deskroll.train.trackers import tracked_run, trackers_of
from deskroll.train.trackers.tracking import Tracking

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainEnded:
    """How a training run ended."""

    folder: str
    steps: list[StepRecord]
    evaluations: list[EvalRecord]
    wanted: int
    """Steps that were to be taken."""
    code: int
    """The exit code."""

    def tell(self, *, as_json: bool) -> None:
        """Print what came of it, and what can be done next."""
        if as_json:
            click.echo(
                msgspec.json.encode({"folder": self.folder, "steps": self.steps, "evaluations": self.evaluations})
            )
            return
        for each in self.evaluations:
            score = "nothing was scored" if each.mean_score is None else f"mean score {each.mean_score:.3f}"
            click.echo(f"{each.phase} after step {each.step}: {score} ({each.successes} of {each.scored} succeed)")
        click.echo(f"{len(self.steps)} of {counted(self.wanted, 'step')} taken")
        if self.code:
            _say(stderr(), f"go on with:  {program()} train --resume {shlex.quote(self.folder)}")
        else:
            _say(stderr(), f"more:  {program()} report {shlex.quote(self.folder)}")


async def train(prepared: Prepared) -> TrainEnded:
    """Carry out a training run, a new one or one that goes on."""
    config, console = prepared.config, stderr()
    raise_open_files()
    check_open_files(prepared.run.num_rollouts)
    asyncio.get_running_loop().set_exception_handler(tell_open_files)
    async with AsyncExitStack() as stack:
        stack.enter_context(outlasting_main_thread())
        interrupts = stack.enter_context(Interrupts(console))
        stack.enter_context(LogLines(console))
        loop = await stack.enter_async_context(_opened(prepared))
        _say(console, f"training run in {prepared.folder}")
        async with Progress(console, loop.runtime.status).shown():
            try:
                await interrupts.guarded(loop, loop.run())
            except DeskrollError as error:
                error.args = (f"{error}\ngo on with:  {program()} train --resume {shlex.quote(prepared.folder)}",)
                raise
        log, unfinished = loop.log, not loop.is_over
    evaluations = [each for each in log.records if isinstance(each, EvalRecord)]
    code = 130 if interrupts.count and unfinished else int(unfinished)
    return TrainEnded(prepared.folder, log.steps, evaluations, config.steps, code)


@asynccontextmanager
async def _opened(prepared: Prepared) -> AsyncIterator[TrainLoop]:
    """Everything that the loop needs."""
    config, root = prepared.config, Path(prepared.folder)
    checkpoints, log = Checkpoints(root, config.save_every), TrainLog(root)
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime.open(prepared.resources, store=prepared.folder))
        if prepared.resumed:
            refuse_changed(prepared.folder, config)
        keep_settings(prepared.folder, config)
        done = 0
        if config.trains:
            checkpoints.begin(start_checkpoint(config))
            log.open()
            done = max((each.step for each in log.steps if checkpoints.is_whole(each.step)), default=0)
            log.forget_after(done)
        else:
            log.open()
        trainer = TrainerProcess(
            config.trainer, config.trainer_options, _context(config, checkpoints.folder(0)), log=root / "trainer.log",
            python=config.trainer_python,
        )  # fmt: skip
        pool = await _start_servers(stack, prepared, checkpoints, done)
        if config.trains:  # meanwhile: servers take their time, too
            _log.info("the trainer %s loads the weights of step %s", config.trainer, done)
            await stack.enter_async_context(trainer)
            await trainer.open(checkpoints.folder(done), checkpoints.state(done))
        servers, address = await _serving(pool, prepared, checkpoints, done)
        plan = _plan(prepared, address)
        about = tracked_run(runtime.store.info, prepared.folder, config, done)
        await stack.enter_async_context(Tracking(trackers_of(config), runtime.hub, about))
        yield TrainLoop(plan, runtime, trainer, servers, checkpoints, log, _log.info)


async def _start_servers(
    stack: AsyncExitStack, prepared: Prepared, checkpoints: Checkpoints, done: int
) -> ModelServicePool | None:
    """The run's own servers, which start from now on, with the weights of the last step; None: it has none."""
    if prepared.models is None:
        return None
    whole = prepared.config.trains and not prepared.models.enable_lora
    base = str(checkpoints.folder(done)) if whole else prepared.models.ckpt_path
    pool = ModelServicePool(prepared.models.model_copy(update={"ckpt_path": base}), tell=_log.warning)
    await stack.enter_async_context(pool)
    _log.info("starting %s, which may take minutes", counted(prepared.models.replicas, "model server"))
    return pool


async def _serving(
    pool: ModelServicePool | None, prepared: Prepared, checkpoints: Checkpoints, done: int
) -> tuple[Servers, str]:
    """Whoever serves the model with the weights of the last step, and where runs ask; empty: as the settings say."""
    model, config = prepared.run.model, prepared.config
    if pool is not None:
        await pool.ready()
        if prepared.models is not None and prepared.models.enable_lora and done:
            await pool.reload(checkpoints.folder(done))
        return OwnPool(pool), pool.address
    if model.pool:
        elsewhere = PoolElsewhere(model.pool, adapters=config.trains and config.lora_rank > 0)
        if done:
            await elsewhere.reload(checkpoints.folder(done))
        return elsewhere, ""
    return Unrefreshed(), ""


def _plan(prepared: Prepared, address: str) -> TrainPlan:
    config = prepared.config
    return TrainPlan(
        tasks=prepared.train_tasks,
        spec=_asking(prepared.train_spec, address),
        steps=config.steps if config.trains else 0,
        pace=Pace(
            groups_per_batch=config.groups_per_batch, most_behind=config.max_steps_off_policy or 0,
            staleness=config.staleness,
        ),
        group_size=config.group_size,
        seed=config.seed,
        eval_tasks=prepared.eval_tasks,
        eval_spec=_asking(prepared.eval_spec, address),
        eval_samples=config.eval_samples,
        eval_every=config.eval_every,
        baseline=not config.skip_baseline,
        baseline_only=config.baseline_only,
        advantage=config.advantage,
        weight=config.weight,
        image_token=_image_token(start_checkpoint(config)),
        folder=prepared.train_files,
        eval_folder=prepared.eval_files,
    )  # fmt: skip


def _asking(spec: EpisodeSpec, address: str) -> EpisodeSpec:
    """The spec with its model asked there."""
    return spec.model_copy(update={"model": spec.model.model_copy(update={"pool": address})}) if address else spec


def _context(config: CLIConfig, start: Path) -> TrainerContext:
    return TrainerContext(
        seed=config.seed, learning_rate=config.learning_rate, kl_penalty_coef=config.kl_penalty_coef,
        num_substeps=config.num_substeps, lora_rank=config.lora_rank, start=str(start),
    )  # fmt: skip


class _Config(msgspec.Struct):
    image_token_id: int | None = None


def _image_token(checkpoint: Path) -> int | None:
    """The id that stands for a picture in prompts, as the model's configuration says; None: it sees none."""
    try:
        return msgspec.json.decode((checkpoint / "config.json").read_bytes(), type=_Config).image_token_id
    except (OSError, msgspec.MsgspecError):
        return None


def _say(console: Console, line: str) -> None:
    """A line as it is, however long: it may be pasted."""
    console.print(line, highlight=False, soft_wrap=True)
