"""Episodes made by hand, for statistics that need nothing else."""

from deskroll.errors import FailureClass
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason, Usage


def episode(
    task: str = "t",
    score: float | None = 1.0,
    *,
    sample: int = 0,
    domain: str = "",
    failure: FailureClass | None = None,
    phase: str = "eval",
    round: int = 0,
    attempt: int = 1,
    stop: StopReason | None = None,
    answer: str | None = None,
    steps: int = 0,
    desktop: str = "",
    usage: Usage | None = None,
    started_at: float = 0.0,
    ended_at: float = 0.0,
    seconds: dict[str, float] | None = None,
) -> Episode:
    return Episode(
        key=EpisodeKey(phase=phase, round=round, task=task, sample=sample),
        attempt=attempt,
        stop=stop or (StopReason.FAILURE if failure else StopReason.DONE),
        score=Score(value=score, reason="made by hand"),
        failure=Failure(failure_class=failure, kind=f"{failure.title()}Error", message="broke") if failure else None,
        domain=domain,
        answer=answer,
        steps=steps,
        desktop=desktop,
        usage=usage or Usage(),
        started_at=started_at,
        ended_at=ended_at,
        seconds=seconds or {},
    )


def run(scores: str, **kwargs: object) -> list[Episode]:
    """One episode a character, tasks t0, t1 ...: 1 and 0 are scores, h is a half, - is unscored by the desktop."""
    values = {"1": 1.0, "0": 0.0, "h": 0.5, "-": None}
    return [
        episode(f"t{n}", values[each], failure=FailureClass.DESKTOP if each == "-" else None, **kwargs)  # type: ignore[arg-type]
        for n, each in enumerate(scores)
    ]
