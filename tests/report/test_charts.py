"""The numbers that are drawn."""

from deskroll.report.charts import MAX_DESKTOPS, charts, timeline
from deskroll.report.stats import Plan, summarise
from deskroll.store.journal import DesktopChanged
from tests.report.episodes import episode, run


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


def test_bars() -> None:
    episodes = run("11h0-", domain="os", steps=3)
    summary = summarise(7, episodes, plan=[Plan(phase="eval", domain="os", episodes=7)])
    found = charts(summary, episodes, [])
    assert found.outcomes.labels == ["os"]
    assert found.outcomes.parts == {"success": [2], "partial": [1], "failed": [1], "unscored": [1], "not run": [2]}
    assert found.scores.parts["episodes"] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert found.steps.labels == ["0", "1", "2", "3"]
    assert found.steps.parts["success"] == [0, 0, 0, 2]


def test_scores_on_the_edge_of_a_bin_and_beyond() -> None:
    episodes = [episode(f"t{n}", score) for n, score in enumerate([0.3, 0.7, -2.0, 5.0])]
    counts = charts(summarise(4, episodes), episodes, []).scores.parts["episodes"]
    assert (counts[3], counts[7], counts[0], counts[9]) == (1, 1, 1, 1)


def test_many_steps_share_bars() -> None:
    episodes = [episode(f"t{n}", steps=n) for n in range(101)]
    found = charts(summarise(101, episodes), episodes, []).steps
    assert found.labels[:2] == ["0–5", "6–11"]
    assert sum(found.parts["success"]) == 101
