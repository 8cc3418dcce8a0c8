"""A trainer in this process, and a pool of scripted servers that it feeds: what the tests of the loop share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from deskroll.errors import DeskrollError, ModelError, Untrainable
from deskroll.events import EventSink
from deskroll.models.scripted import Script
from deskroll.rollout.config import Resources
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.train.base import StepReport, TrainBatch
from deskroll.train.checkpoints import Checkpoints
from deskroll.train.log import TrainLog
from deskroll.train.loop import TrainLoop, TrainPlan
from deskroll.train.servers import OwnPool
from deskroll.train.staleness import Pace
from deskroll.types import Task
from tests.models.vllm.scripted_pool import ScriptedServers, scripted_pool
from tests.models.weights.files import one_file, safetensors

LUCK = Script.parse({"latency": [0.001, 0.03], "replies": [{"turns": [{"text": "42", "by_seed": ["42", "7"]}]}]})
"""Right or wrong, as the seed of the sample has it."""


class Trainer:
    """Writes weights that say which version they are; fails when told so."""

    def __init__(self, *, adapters: bool = False) -> None:
        self._adapters = adapters
        self.batches: list[TrainBatch] = []
        self.opened: list[str] = []
        self.fails = 0
        """So many of the next steps."""
        self.refuses = False
        """Whether it takes no batch, now or later."""
        self.asked = 0
        self._step = 0

    async def open(self, checkpoint: Path, state: Path | None) -> None:
        self.opened.append(checkpoint.name)
        self._step = int(checkpoint.name.removeprefix("step_"))
        assert (state is None) == (self._step == 0)

    async def step(self, batch: TrainBatch) -> StepReport:
        assert batch.step == self._step + 1
        self.asked += 1
        if self.refuses:
            raise Untrainable(f"the worst is token 3 of {batch.sequences[0].name}")
        if self.fails:
            self.fails -= 1
            raise DeskrollError("out of memory")
        self.batches.append(batch)
        self._step += 1
        return StepReport(loss=0.5, tokens=sum(len(each.token_ids) for each in batch.sequences))

    async def save(self, folder: Path) -> None:
        if self._adapters:
            (folder / "adapter_model.safetensors").write_bytes(safetensors({"a": (4,)}, fill=float(self._step)))
        else:
            one_file(folder, fill=float(self._step))

    async def save_state(self, folder: Path) -> None:
        (folder / "state").write_text(str(self._step))


def tasks(count: int, prefix: str = "t") -> list[Task]:
    return [Task(id=f"{prefix}{n}", instruction=f"What is 6*7? ({n})", answer="42") for n in range(count)]


class Refusing(OwnPool):
    """Servers that do not take weights, so many times."""

    refuses = 0
    error: DeskrollError = ModelError("no server takes it")

    async def reload(self, folder: Path) -> object:
        if self.refuses:
            self.refuses -= 1
            raise self.error
        return await super().reload(folder)


class Training:
    """One start of a training run in a folder."""

    def __init__(self, loop: TrainLoop, trainer: Trainer, servers: Refusing, told: list[str]) -> None:
        self.loop, self.trainer, self.servers, self.told = loop, trainer, servers, told


@asynccontextmanager
async def training(
    folder: Path, *, script: Script = LUCK, pace: Pace | None = None, adapters: bool = False, env: str = "math",
    resources: Resources | None = None, sink: EventSink | None = None, **plan: Any,
) -> AsyncIterator[Training]:  # fmt: skip
    """All of it, ready to run; a folder that holds a run goes on. `adapters`: those are trained, not whole weights."""
    start = one_file(folder / "start")
    run = folder / "run"
    checkpoints, log = Checkpoints(run, save_every=10), TrainLog(run)
    told: list[str] = []
    resources = resources or Resources(backend="inline", num_rollouts=8)
    async with Runtime.open(resources, store=run, sink=sink) as runtime:
        checkpoints.begin(start)
        log.open()
        done = max((each.step for each in log.steps if checkpoints.is_whole(each.step)), default=0)
        log.forget_after(done)
        servers = ScriptedServers(folder / f"s{runtime.store.epoch}", script=script)
        trainer = Trainer(adapters=adapters)
        (folder / f"s{runtime.store.epoch}").mkdir()
        base = checkpoints.folder(0 if adapters else done)
        async with scripted_pool(servers, base, told, replicas=2, enable_lora=adapters) as pool:
            await pool.ready()
            if adapters and done:
                await pool.reload(checkpoints.folder(done))
            model = {"name": "policy", "pool": pool.address, "exact": True, "temperature": 1.0, "seed": 3}
            spec = EpisodeSpec.model_validate({"env": env, "model": model})
            cold = EpisodeSpec.model_validate({"env": env, "model": {**model, "temperature": 0.0}})
            fields = {
                "tasks": tasks(6), "spec": spec, "steps": 3, "pace": pace or Pace(groups_per_batch=2), "eval_every": 0,
                "eval_tasks": tasks(3, "e"), "eval_spec": cold, "baseline": False, **plan,
            }  # fmt: skip
            await trainer.open(checkpoints.folder(done), checkpoints.state(done))
            made = TrainPlan(**fields)
            refusing = Refusing(pool)
            loop = TrainLoop(made, runtime, trainer, refusing, checkpoints, log, told.append)
            yield Training(loop, trainer, refusing, told)
