"""OSWorldEnv: a task on a leased desktop.

Owns what the agent sees of the desktop and how its actions reach it. Whose desktop it is, and what becomes of it after
the episode, is its caller's affair.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from deskroll.actions import Action, Answer
from deskroll.desktops.base import DesktopSpec, Settle, StepResult
from deskroll.envs.answers import judge_answer
from deskroll.envs.base import STOPS, Ending, Env, EnvContext, TurnResult
from deskroll.envs.osworld.evaluate import (
    check_evaluator,
    close_workers,
    evaluate,
    evaluator_files,
    looks_at_desktop,
    require_evaluator,
)
from deskroll.envs.osworld.observe import View
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, bundled_files, check_steps, perform
from deskroll.errors import GuestError, InputError, SetupError
from deskroll.host.below import read_below
from deskroll.types import Observation, Score, Stage, Task, Tool, ToolRequest

_log = logging.getLogger(__name__)
_SIMULATED = (
    "not judged: its desktop is a simulated one (provider sim), on which no program runs, so that nothing is left to "
    "look at; use other desktops (--provider local) for a score"
)


class OSWorldEnv(Env):
    """One task on one desktop."""

    Settings: ClassVar[type[OSWorldSettings]] = OSWorldSettings
    code_options: ClassVar[tuple[str, ...]] = ("action_space", "observation_type")

    def __init__(self, task: Task, settings: OSWorldSettings, context: EnvContext) -> None:
        if context.desktop is None:
            raise SetupError(f"task {task.id!r} needs a desktop, and none was given")
        super().__init__(task, settings, context)
        self._desktop = context.desktop
        self._setup = SetupContext(task.id, settings, context.folder)
        self._recording = False
        self._view = View(settings, raw_tree=context.raw_tree)
        cap = settings.sleep_after_execution
        self._settle = Settle(react=min(Settle().react, cap), cap=cap)

    @staticmethod
    def desktop_spec(task: Task, settings: OSWorldSettings) -> DesktopSpec | None:
        """The run's desktop, with what the task's own `env_config` asks for."""
        spec = DesktopSpec(
            width=settings.screen_width,
            height=settings.screen_height,
            network=settings.network,
            client_password=settings.client_password,
            snapshot=settings.snapshot_name,
            proxy=settings.enable_proxy and _wished(task, "proxy"),
            fixed_ip=settings.enable_fixed_ip and _wished(task, "fixed_ip"),
        )
        env_config = task.metadata.get("env_config")
        if env_config is None:
            return spec
        if not isinstance(env_config, Mapping):
            raise InputError('env_config must be an object, e.g. {"proxy": true}')
        return spec.overridden(env_config)

    @classmethod
    def offered(cls, settings: OSWorldSettings) -> Sequence[Tool]:
        """The computer."""
        return [View(settings).tool]

    @staticmethod
    def picture_size(settings: OSWorldSettings, spec: DesktopSpec) -> tuple[int, int]:
        """The size of the options, where they have one."""
        return settings.image_width or spec.width, settings.image_height or spec.height

    @classmethod
    def check_task(cls, task: Task) -> None:
        """Its set-up steps and its evaluator must be known."""
        check_steps(task)
        check_evaluator(task)

    @classmethod
    def is_judged(cls, task: Task) -> bool:
        """By its evaluator or, where it has none, by its answer."""
        return task.answer is not None or "func" in task.evaluator

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: OSWorldSettings, folder: Path) -> str:
        """Accounts, evaluators and files that come with tasks must be there; the digest is that of these files."""
        digest = hashlib.sha256()
        for task in tasks:
            try:
                check_steps(task, settings)
                require_evaluator(task, settings.evaluators)
                for file in (*bundled_files(task, folder), *evaluator_files(task, folder)):
                    digest.update(f"{task.id}\0{file.name}\0".encode() + read_below(file.parent, file.name))
            except (InputError, SetupError, OSError) as error:
                raise InputError(f"task {task.id!r}: {error}") from None
        return digest.hexdigest() if digest.digest() != hashlib.sha256().digest() else ""

    @staticmethod
    async def close_shared() -> None:
        """End the processes that judge with OSWorld's own code."""
        await close_workers()

    async def reset(self) -> Observation:
        """Perform the set-up steps, and look."""
        try:
            await perform(self.task.setup, self._desktop, self._setup)
        finally:
            self._keep_steps("setup.json")
        self._recording = self.settings.enable_recording and await self._record()
        settle = self._settle if self.task.setup else None
        seen = await self._view.show(await self._desktop.step((), settle=settle, observe=self._view.observe))
        return msgspec.structs.replace(seen, instruction=self.task.instruction)

    def _keep_steps(self, name: str) -> None:
        """Keep what is known of the steps that were performed since it was last kept."""
        if self._setup.took:
            self.context.keep(name, msgspec.json.encode(self._setup.took))
            self._setup.took.clear()

    async def _record(self) -> bool:
        """Begin the recording; an attempt without one is worth more than none."""
        try:
            await self._desktop.start_recording(self.settings.recording_fps)
        except GuestError as error:
            _log.warning("task %r is not recorded: desktop %s: %s", self.task.id, self._desktop.id, error)
            return False
        return True

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        """The actions of a call, in the run's action space."""
        return self._view.decode(call)

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        """Act, let the screen settle, look; one of DONE, FAIL and an answer ends the episode."""
        doing = list(actions)
        end = next((n for n, each in enumerate(doing) if type(each) in STOPS), None)
        last = doing[end] if end is not None else None
        doing = doing[:end]
        if last is not None and not doing:
            return _ended(last, Observation(), StepResult())
        seen = await self._desktop.step(doing, settle=self._settle, observe=self._view.observe)
        results = [each.output if each.ok else f"error: {each.error}" for each in seen.results]
        observation = await self._view.show(seen, results)
        return _ended(last, observation, seen)

    async def score(self, ending: Ending) -> Score:
        """Judge the desktop's state or, where the task has no evaluator, the answer."""
        if "func" not in self.task.evaluator:
            if self.task.answer is None:
                return Score(value=None, reason="the task has neither an evaluator nor a reference answer")
            return await judge_answer(self.task, ending.answer, self.settings, self.context.judge)
        if self._desktop.simulated and looks_at_desktop(self.task):
            return Score(value=None, reason=_SIMULATED)
        whose = self.settings.evaluators
        keep, model = self.context.keep, self.context.judge
        try:
            return await evaluate(
                self.task, self._desktop, ending, self._setup, evaluators=whose, keep=keep, model=model
            )
        finally:
            self._keep_steps("postconfig.json")

    async def close(self) -> None:
        """Keep the recording; the desktop is its caller's."""
        if self._recording:
            self._recording = False
            self.context.keep("recording.mp4", await self._desktop.end_recording())


def _wished(task: Task, name: str) -> bool:
    return task.metadata.get(name) in (True, "true", "True")


def _ended(last: Action | None, observation: Observation, seen: StepResult) -> TurnResult:
    stop = None if last is None else STOPS[type(last)]
    answer = last.text if isinstance(last, Answer) else None
    waited = sum(seen.seconds.get(part, 0.0) for part in ("settle", "look", "tree"))
    return TurnResult(
        observation=observation, stop=stop, answer=answer, seconds={Stage.SETTLE: waited}, settled=str(seen.settle)
    )
