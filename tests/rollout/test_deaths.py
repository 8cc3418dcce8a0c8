"""Which deaths of desktops are one event: those of the same moment, of desktops that were in use at the same time."""

from __future__ import annotations

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import Pool, PoolConfig, PoolStatus
from deskroll.desktops.pool.slot import State
from deskroll.desktops.pool.status import DesktopStatus
from deskroll.desktops.providers import make_provider
from deskroll.errors import DesktopLost, DesktopTimeout
from deskroll.rollout.deaths import Deaths
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason

KEY = EpisodeKey(phase="eval", round=0, task="t", sample=0)


def ended(desktop: str, lasted: float = 100.0, error: type[DesktopLost | DesktopTimeout] = DesktopLost) -> Episode:
    """An attempt whose desktop failed, after so many seconds of use and a long wait for its turn."""
    return Episode(
        key=KEY, attempt=1, stop=StopReason.FAILURE, score=Score(value=None, reason=""), desktop=desktop,
        failure=Failure.of(error("it is gone")), seconds={"permit": 1e6, "setup": 1.0, "act": lasted - 1.0},
    )  # fmt: skip


def told(*deaths: tuple[str, float, float]) -> Deaths:
    found = Deaths()
    for desktop, at, lasted in deaths:
        found.hear_attempt(ended(desktop, lasted), at)
    return found


def test_deaths_of_one_moment_are_one_event() -> None:
    found = told(("a", 100.0, 50.0), ("b", 101.0, 50.0), ("c", 110.0, 50.0))
    assert [found.beside(each) for each in "abc"] == [1, 1, 0]
    assert found.beside("unheard of") == 0


def test_one_that_died_before_the_other_was_used_is_another_matter() -> None:
    found = told(("a", 100.0, 50.0), ("b", 101.0, 0.5))
    assert [found.beside(each) for each in "ab"] == [0, 0], "as when an agent kills one after the other"


def test_a_call_that_was_late_is_no_death() -> None:
    found = told(("a", 100.0, 50.0))
    found.hear_attempt(ended("b", error=DesktopTimeout), 100.0)
    assert found.beside("a") == 0


async def status(*desktops: tuple[str, State, str], draining: bool = False) -> PoolStatus:
    async with Pool(make_provider("sim", {}), PoolConfig(num_vms=1)) as pool:
        if draining:
            await pool.drain()
        plain = await pool.status()
    shown = (
        DesktopStatus(id=name, state=state, since_s=1.0, spec=DesktopSpec(), doomed=why)
        for name, state, why in desktops
    )
    return msgspec.structs.replace(plain, desktops=tuple(shown))


async def test_the_pool_knows_of_deaths_that_no_holder_has_noticed_yet() -> None:
    dead = [(name, State.LEASED, "it died") for name in "ab"]
    seen = (*dead, ("c", State.LEASED, ""), ("d", State.STOPPING, "it was surplus"))
    found = Deaths()
    found.hear_pool(await status(*seen), 100.0)
    found.hear_pool(await status(*seen), 130.0)
    found.hear_attempt(ended("a", 10.0), 100.5)
    found.hear_attempt(ended("b", 90.0), 150.0)
    assert found.beside("a") == 1
    drained = Deaths()
    drained.hear_pool(await status(*seen, draining=True), 100.0)
    drained.hear_attempt(ended("a"), 100.5)
    assert drained.beside("a") == 0, "they are to be stopped, and live"
