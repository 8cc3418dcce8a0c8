"""What each desktop did when, over one start of a run or several."""

from deskroll.report.timeline import MAX_DESKTOPS, Span, Start, starts_of, timeline
from deskroll.store.journal import Closed, CloseReason, DesktopChanged, Opened
from tests.report.episodes import episode


def change(desktop: str, state: str, at: float) -> DesktopChanged:
    return DesktopChanged(desktop=desktop, state=state, at=at)


def test_a_desktop_is_in_a_state_until_the_next_one() -> None:
    found = timeline(
        [change("d1", "booting", 100), change("d1", "ready", 102), change("d2", "booting", 101),
         change("d1", "leased", 105), change("d2", "gone", 103), change("d1", "recycling", 110)], []
    )  # fmt: skip
    assert [(span.desktop, span.state, span.start, span.end) for span in found.spans] == [
        ("d1", "booting", 0, 2),
        ("d2", "booting", 1, 3),
        ("d1", "ready", 2, 5),
        ("d1", "leased", 5, 10),
    ]
    assert found.seconds == 10
    assert found.desktops == ["d1", "d2"]


def test_without_a_journal_of_desktops_the_episodes_tell() -> None:
    found = timeline([], [episode(desktop="d1", started_at=5, ended_at=9), episode("x", started_at=1, ended_at=2)])
    assert [(span.desktop, span.start, span.end) for span in found.spans] == [("d1", 0, 4)]
    assert timeline([], []).desktops == []


def test_too_many_desktops_are_cut_and_counted() -> None:
    found = timeline(
        [change(f"d{n}", state, n + at) for n in range(60) for at, state in ((0, "ready"), (5, "gone"))], []
    )
    assert len(found.desktops) == MAX_DESKTOPS
    assert found.left_out == 60 - MAX_DESKTOPS


def shown(spans: list[Span]) -> list[tuple[str, str, float, float]]:
    return [(span.desktop, span.state, span.start, span.end) for span in spans]


def test_a_bar_ends_with_its_start_and_the_pause_is_cut_out() -> None:
    """Nobody wrote that d1 and d2 were taken away; the resume came ten minutes later."""
    changes = [change("d1", "booting", 100), change("d1", "ready", 102), change("d2", "booting", 104),
               change("d3", "booting", 706), change("d3", "leased", 708)]  # fmt: skip
    found = timeline(changes, [], [Start(begun=99, ended=106), Start(begun=705, ended=710)])
    assert shown(found.spans) == [
        ("d1", "booting", 0, 2),
        ("d1", "ready", 2, 6),
        ("d2", "booting", 4, 6),
        ("d3", "booting", 6, 8),
        ("d3", "leased", 8, 10),
    ]
    assert (found.seconds, found.cuts) == (10, [6])


def test_a_desktop_that_comes_back_was_in_no_state_meanwhile() -> None:
    changes = [change("d1", "ready", 100), change("d1", "booting", 500), change("d1", "gone", 503)]
    found = timeline(changes, [], [Start(begun=100, ended=104), Start(begun=499, ended=510)])
    assert shown(found.spans) == [("d1", "ready", 0, 4), ("d1", "booting", 4, 7)]


def test_a_start_that_was_not_closed_ends_with_its_last_record() -> None:
    opened = [Opened(epoch=epoch, at=at) for epoch, at in ((1, 10.0), (2, 50.0), (3, 80.0))]
    closed = [Closed(epoch=2, at=60.0, why=CloseReason.STOPPED)]
    assert starts_of(opened, closed, [12.0, 31.0, 55.0, 85.0]) == [
        Start(begun=10, ended=31),
        Start(begun=50, ended=60),
        Start(begun=80, ended=85),
    ]
    assert starts_of(opened[:1], [], []) == [Start(begun=10, ended=10)]
