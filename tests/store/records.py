"""Records to write and expect."""

from deskroll.actions import Click
from deskroll.errors import FailureClass
from deskroll.store import RunInfo
from deskroll.types import Completion, Episode, EpisodeKey, Failure, Score, Step, StopReason, Usage

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff\xe0"


def info(run_id: str = "run-1") -> RunInfo:
    return RunInfo(run_id=run_id, version="0", config={"seed": 7}, config_digest="abc", command=("deskroll", "run"))


def key(task: str = "task", sample: int = 0, phase: str = "eval", round_: int = 0) -> EpisodeKey:
    return EpisodeKey(phase=phase, round=round_, task=task, sample=sample)


def episode(of: EpisodeKey, attempt: int = 1, value: float | None = 1.0, **fields: object) -> Episode:
    given: dict[str, object] = {
        "key": of,
        "attempt": attempt,
        "stop": StopReason.DONE,
        "score": Score(value=value, reason="because"),
        "usage": Usage(prompt_tokens=10, completion_tokens=3, calls=1, cost_usd=0.5),
        "started_at": 100.0,
        "ended_at": 112.5,
        "seconds": {"model": 3.5},
    }
    return Episode(**{**given, **fields})  # type: ignore[arg-type]


def lost(of: EpisodeKey, attempt: int = 1) -> Episode:
    failure = Failure(failure_class=FailureClass.DESKTOP, kind="DesktopLost", message="it is gone")
    return episode(of, attempt, None, stop=StopReason.FAILURE, failure=failure)


def step(index: int, **completion: object) -> Step:
    told = Completion(text=f"click {index}", model="m", version="v1", **completion)  # type: ignore[arg-type]
    return Step(index=index, actions=(Click(x=index, y=2),), thought="so", completion=told, results=("",))
