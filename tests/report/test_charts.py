"""The numbers that are drawn."""

from deskroll.report.charts import charts
from deskroll.report.stats import Plan, summarise
from tests.report.episodes import episode, run


def test_bars() -> None:
    episodes = run("11h0-", domain="os", steps=3)
    summary = summarise(7, episodes, plan=[Plan(phase="eval", domain="os", episodes=7)])
    found = charts(summary, episodes, [])
    assert found.outcomes.labels == ["os"]
    assert found.outcomes.parts == {"success": [2], "partial": [1], "failed": [1], "unscored": [1], "not run": [2]}
    assert found.scores.parts == {
        "success": [0] * 9 + [2], "partial": [0] * 5 + [1] + [0] * 4, "failed": [1] + [0] * 9,
    }  # fmt: skip
    assert found.steps.labels == ["0", "1", "2", "3"]
    assert found.steps.parts["success"] == [0, 0, 0, 2]


def test_scores_on_the_edge_of_a_bin_and_beyond() -> None:
    episodes = [episode(f"t{n}", score) for n, score in enumerate([0.3, 0.7, -2.0, 5.0])]
    parts = charts(summarise(4, episodes), episodes, []).scores.parts
    counts = [sum(each) for each in zip(*parts.values(), strict=True)]
    assert (counts[3], counts[7], counts[0], counts[9]) == (1, 1, 1, 1)


def test_many_steps_share_bars() -> None:
    episodes = [episode(f"t{n}", steps=n) for n in range(101)]
    found = charts(summarise(101, episodes), episodes, []).steps
    assert found.labels[:2] == ["0–5", "6–11"]
    assert sum(found.parts["success"]) == 101
