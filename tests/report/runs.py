"""Whole runs, written through the store as the engine writes them: realistic, and the same every time.

`python -m tests.report.runs FOLDER` leaves some behind, to look at.
"""

import asyncio
import functools
import io
import random
import sys
from pathlib import Path

import msgspec
from PIL import Image, ImageDraw

from deskroll.actions import Action, Answer, Click, Done, Hotkey, Typing
from deskroll.errors import FailureClass
from deskroll.models import Message
from deskroll.rollout.config import RunConfig
from deskroll.store import AttemptWriter, RunInfo, RunStore
from deskroll.store.journal import DesktopChanged, Failed, Planned, Sealed, Started
from deskroll.types import Completion, Episode, EpisodeKey, Failure, Score, Step, StopReason, Usage

BEGIN = 1_760_000_000.0
DOMAINS = {"chrome": 0.55, "libreoffice_calc": 0.35, "os": 0.75, "vlc": 0.5}
KINDS = {
    FailureClass.AGENT: ("ActionError", "CLICK.x is 4000; allowed: 0 to 1919 on this 1920x1080 screen"),
    FailureClass.MODEL: ("ModelError", "http://model:8000: 503 Service Unavailable, 6 tries in 60 s"),
    FailureClass.DESKTOP: ("DesktopLost", "local-7f3a: the guest does not answer any more"),
    FailureClass.SETUP: ("SetupError", "download of budget.xlsx: 404"),
    FailureClass.EVALUATOR: ("EvaluatorError", "compare_table: the result file is no workbook"),
    FailureClass.ENV: ("EnvError", "the environment: IndexError: list index out of range"),
    FailureClass.WORKER: ("WorkerLost", "worker 2 was killed by signal 9"),
    FailureClass.CANCELLED: ("Cancelled", "somebody stopped it"),
}
TEXTS = {
    "chrome": ("Make the bookmarks bar show on every page.", "I open the menu to find the bookmarks setting."),
    "libreoffice_calc": ("Add a column with the sum of each row.", "The sheet has 14 rows; I put the formula into G2."),
    "os": ("Turn on do-not-disturb.", "The notification settings are under the clock menu."),
    "vlc": ("Let the player start in full screen.", "I go through the preferences to the video tab."),
}  # fmt: skip


@functools.cache
def screen(title: str, step: int, size: tuple[int, int] = (480, 270)) -> bytes:
    """A small picture that looks a little like a desktop."""
    image = Image.new("RGB", size, (38, 70, 96))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, size[0], 14), fill=(24, 28, 36))
    draw.text((6, 1), "Activities", fill=(220, 220, 220))
    left = 40 + step * 9 % 80
    draw.rectangle((left, 36, left + 320, 230), fill=(246, 246, 246))
    draw.rectangle((left, 36, left + 320, 54), fill=(210, 214, 220))
    draw.text((left + 8, 39), title[:44], fill=(30, 30, 30))
    for line in range(2 + step % 8):
        draw.rectangle(
            (left + 14, 68 + line * 18, left + 80 + (line * 61 + step * 37) % 210, 76 + line * 18), fill=(150, 160, 176)
        )
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


class Maker:
    """Makes the episodes of one run, by the seed."""

    def __init__(self, store: RunStore, seed: int, skill: float, desktops: int, hostile: str = "") -> None:
        self.store = store
        self.random = random.Random(seed)
        self.skill = skill
        self.hostile = hostile
        self.free_at = {f"local-{n:02d}": BEGIN + 2.0 + n * 0.4 for n in range(desktops)}
        self.changes: list[DesktopChanged] = []
        for name, ready in self.free_at.items():
            self.change(name, "booting", BEGIN)
            self.change(name, "checking", ready - 0.4)
            self.change(name, "ready", ready)

    def change(self, desktop: str, state: str, at: float) -> None:
        self.changes.append(DesktopChanged(desktop=desktop, state=state, at=at))

    def end(self) -> None:
        """Take all desktops away: the clock of these records is not that of the run."""
        latest = max(self.free_at.values())
        for name in self.free_at:
            self.change(name, "gone", latest + 1)

    async def episode(self, key: EpisodeKey, domain: str, culprit: FailureClass | None, attempt: int = 1) -> Episode:
        """Make one attempt, with its files."""
        dice, number = self.random, self.random.randint(3, 14)
        desktop = min(self.free_at, key=lambda name: self.free_at[name])
        begin = self.free_at[desktop]
        seconds = {
            "permit": dice.uniform(0, 4), "desktop": dice.uniform(0, 9), "setup": dice.uniform(1, 6),
            "model": number * dice.uniform(1.5, 4), "act": number * dice.uniform(0.1, 0.4),
            "settle": number * dice.uniform(0.3, 0.7), "score": dice.uniform(0.3, 2), "store": dice.uniform(0.01, 0.05),
        }  # fmt: skip
        leased = begin + seconds["permit"] * 0.1
        end = leased + sum(took for name, took in seconds.items() if name not in ("permit", "desktop"))
        self.change(desktop, "leased", leased)
        self.change(desktop, "recycling", end)
        self.change(desktop, "checking", end + dice.uniform(0.8, 2))
        self.free_at[desktop] = end + 2.4
        self.change(desktop, "ready", end + 2.4)
        async with AttemptWriter(self.store.storage, key, attempt) as writer:
            self._steps(writer, domain, number)
            episode = msgspec.structs.replace(
                self._record(key, attempt, domain, culprit, number),
                desktop=desktop,
                seconds={name: round(took, 3) for name, took in seconds.items()},
                started_at=leased - seconds["permit"] - seconds["desktop"],
                ended_at=end,
            )
            await writer.seal(episode)
        return episode

    def _steps(self, writer: AttemptWriter, domain: str, number: int) -> None:
        instruction, thought = TEXTS[domain]
        first = writer.screen(screen(f"{domain}: a fresh desktop", 100))
        writer.message(Message.user("do it", [(first, screen(f"{domain}: a fresh desktop", 100))]).stored)
        for index in range(number):
            actions: tuple[Action, ...] = (Click(x=200 + index * 31, y=140 + index * 17),)
            if index % 3 == 1:
                actions = (Typing(text="=SUM(B2:F2)\n" + self.hostile), Hotkey(keys=("ctrl", "s")))
            if index == number - 1:
                actions = (Done(),) if number % 2 else (Answer(text="It is done."),)
            name = writer.screen(screen(f"{domain}: {instruction}", index - index % 2))
            writer.step(
                Step(
                    index=index,
                    actions=actions,
                    thought=thought + self.hostile,
                    completion=Completion(text=thought, prompt_tokens=1500, completion_tokens=60),
                    notes=("CLICK: (4000, 5) is off the 1920x1080 screen; taken: (1919, 5)" + self.hostile,),
                    results=(self.hostile,) * len(actions),
                    screen=name,
                    seconds={"model": 2.1, "act": 0.2, "settle": 0.41},
                    settled="settled",
                )
            )

    def _record(self, key: EpisodeKey, attempt: int, domain: str, culprit: FailureClass | None, number: int) -> Episode:
        dice = random.Random(f"{key.task}/{key.sample}/{self.skill}")
        chance = DOMAINS[domain] * self.skill
        easy = random.Random(key.task).random() < chance
        value: float | None = 1.0 if dice.random() < (0.85 if easy else 0.2) else dice.choice([0.0, 0.0, 0.0, 0.5])
        if culprit is not None:
            value = 0.0 if culprit is FailureClass.AGENT else None
        kind, message = KINDS[culprit] if culprit else ("", "")
        message += self.hostile if culprit else ""
        stop = dice.choice([StopReason.DONE, StopReason.DONE, StopReason.ANSWER, StopReason.MAX_TURNS])
        if culprit is not None:
            stop = StopReason.CANCELLED if culprit is FailureClass.CANCELLED else StopReason.FAILURE
        return Episode(
            key=key,
            attempt=attempt,
            stop=stop,
            score=Score(
                value=value,
                reason=message or ("as expected" if value == 1 else "the file does not match"),
                found=None if culprit else "It says 41." + self.hostile,
                expected=None if culprit else "It says 42." + self.hostile,
            ),
            failure=Failure(failure_class=culprit, kind=kind, message=message) if culprit else None,
            steps=number,
            actions=number,
            answer="It is done." + self.hostile if stop is StopReason.ANSWER or self.hostile else None,
            domain=domain + self.hostile,
            model="qwen-vl" + self.hostile,
            versions=("step-120",),
            usage=Usage(
                prompt_tokens=1500 * number,
                completion_tokens=60 * number,
                calls=number,
                cost_usd=None if number % 7 == 0 else 0.004 * number,
            ),
        )


async def make_run(
    root: Path,
    *,
    tasks: int = 30,
    samples: int = 2,
    seed: int = 1,
    skill: float = 1.0,
    leave: int = 0,
    desktops: int = 6,
    failures: tuple[FailureClass, ...] = tuple(FailureClass),
    hostile: str = "",
) -> None:
    """Write a run of `tasks` * `samples` episodes; the last `leave` of them are not run."""
    domains = list(DOMAINS)
    plan = [(f"{domains[n % len(domains)]}-{n:03d}{hostile}", domains[n % len(domains)]) for n in range(tasks)]
    settings = RunConfig.model_validate({
        "tasks": "suite:desk", "env": "osworld", "agent": "chat", "model": {"name": "qwen-vl", "seed": 0},
        "provider": "local", "num_vms": desktops, "num_rollouts": desktops, "group_size": samples,
        "limits": {"max_turns": 37},
    })  # fmt: skip
    config = {**settings.model_dump(mode="json"), "note": hostile}
    info = RunInfo(
        run_id=root.name, created_at=BEGIN, version="0.1.0", config=config, command=("deskroll", "run", "suite:desk"),
        git_commit="cdd2034", python="3.11", machine={"cpus": 8},
    )  # fmt: skip
    questions = dict(plan)
    async with RunStore.create(root, info, describe=lambda key: TEXTS[questions[key.task]][0] + hostile) as store:
        maker = Maker(store, seed, skill, desktops, hostile)
        keys = []
        for task, domain in plan:
            store.write(Planned(phase="eval", round=0, task=task, samples=samples, domain=domain + hostile))
            keys += [(EpisodeKey(phase="eval", round=0, task=task, sample=n), domain) for n in range(samples)]
        culprits = dict(zip(range(3, len(keys), max(1, len(keys) // (len(failures) + 1))), failures, strict=False))
        for place, (key, domain) in enumerate(keys[: len(keys) - leave]):
            attempt = 1
            if place % 11 == 5:
                store.write(Started(key=key, attempt=1, epoch=store.epoch))
                again = await maker.episode(key, domain, FailureClass.DESKTOP)
                store.write(Failed(episode=again, epoch=store.epoch, retry_in_s=1.0))
                attempt = 2
            store.write(Started(key=key, attempt=attempt, epoch=store.epoch))
            episode = await maker.episode(key, domain, culprits.get(place), attempt)
            store.write(Sealed(episode=episode, epoch=store.epoch))
        maker.end()
        store.write(*sorted(maker.changes, key=lambda change: change.at))


async def _main(folder: Path) -> None:
    await make_run(folder / "desk-eval", leave=4)
    await make_run(folder / "repeat-1", samples=1, tasks=40, seed=2, failures=())
    await make_run(folder / "repeat-2", samples=1, tasks=40, seed=3, skill=1.3)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
