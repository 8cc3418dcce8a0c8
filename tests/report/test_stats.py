"""The summary of a run, against numbers worked out by hand."""

import msgspec
import pytest

from deskroll.errors import FailureClass
from deskroll.report.outcome import Outcome, outcome_of
from deskroll.report.passk import all_of, any_of
from deskroll.report.stats import NO_DOMAIN, Plan, summarise
from deskroll.report.summary import Method, Summary
from deskroll.types import Episode, Score, StopReason, Usage
from tests.report.episodes import episode, run


@pytest.mark.parametrize("culprit", list(FailureClass))
def test_both_denominators_for_each_class_of_failure(culprit: FailureClass) -> None:
    """Two successes, one failure of the class: an agent's own counts as 0, all else is left out of the scored."""
    score = 0.0 if culprit is FailureClass.AGENT else None
    overall = summarise(3, [episode("a"), episode("b"), episode("c", score, failure=culprit)]).overall
    assert overall.attempted == 3
    assert overall.successes == 2
    assert overall.over_attempted.value == pytest.approx(2 / 3)
    if culprit is FailureClass.AGENT:
        assert (overall.scored, overall.unscored, overall.unscored_by) == (3, 0, {})
        assert overall.over_scored.value == pytest.approx(2 / 3)
    else:
        assert (overall.scored, overall.unscored, overall.unscored_by) == (2, 1, {culprit.value: 1})
        assert overall.over_scored.value == 1.0


def test_an_agents_failure_is_0_even_where_nobody_wrote_it_down() -> None:
    failed = episode("a", None, failure=FailureClass.AGENT)
    assert outcome_of(failed) is Outcome.FAILED
    assert summarise(1, [failed]).overall.scored == 1


@pytest.mark.parametrize(
    ("score", "outcome"),
    [
        (1.0, Outcome.SUCCESS),
        (1 - 1e-10, Outcome.SUCCESS),
        (0.999999, Outcome.PARTIAL),
        (0.0, Outcome.FAILED),
        (-1.0, Outcome.FAILED),
        (None, Outcome.UNSCORED),
        (float("nan"), Outcome.UNSCORED),
    ],
)
def test_outcome(score: float | None, outcome: Outcome) -> None:
    assert outcome_of(episode(score=score)) is outcome


def test_what_has_no_score_and_no_failure() -> None:
    cancelled = episode("a", None, stop=StopReason.CANCELLED)
    overall = summarise(2, [cancelled, episode("b", None)]).overall
    assert overall.unscored_by == {"cancelled": 1, "no_score": 1}
    assert summarise(2, [cancelled, episode("b", None)]).no_score == {"made by hand": 1}


def test_rates_and_mean() -> None:
    """3 successes, a half, 4 zeros, 2 unscored: 3/10, 3/8, and 3.5/8."""
    overall = summarise(12, run("111h0000--")).overall
    assert (overall.planned, overall.attempted, overall.scored, overall.unscored) == (12, 10, 8, 2)
    assert overall.over_attempted.value == pytest.approx(0.3)
    assert (overall.over_attempted.low, overall.over_attempted.high) == pytest.approx((0.1078, 0.6032), abs=5e-5)
    assert overall.over_scored.value == pytest.approx(0.375)
    assert (overall.over_scored.low, overall.over_scored.high) == pytest.approx((0.1368, 0.6943), abs=5e-5)
    assert overall.over_attempted.method is Method.WILSON
    assert overall.mean_score.value == pytest.approx(0.4375)
    # Squares 3 * 0.31640625 + 0.00390625 + 4 * 0.19140625 = 1.71875; / (8 * 7), root: 0.17519; t = 2.36462.
    assert (overall.mean_score.low, overall.mean_score.high) == pytest.approx((0.02325, 0.85175), abs=5e-5)
    assert overall.mean_score.method is Method.STUDENT_T
    alike = summarise(2, [episode("a"), episode("b")]).overall
    assert alike.mean_score.method is Method.WILSON
    assert alike.mean_score == alike.over_scored


def test_several_samples_make_clusters_and_the_summary_says_so() -> None:
    episodes = [episode(f"t{task}", float(task < 2), sample=sample) for task in range(4) for sample in range(2)]
    summary = summarise(8, episodes)
    assert summary.samples == 2
    assert summary.tasks == 4
    assert summary.overall.over_scored.method is Method.WILSON_BY_TASK
    assert summary.overall.over_scored.low == pytest.approx(0.06083, abs=1e-4)
    assert any("not independent" in note for note in summary.notes)


def test_the_same_task_in_two_jobs_is_no_sample_of_it() -> None:
    episodes = [episode(task, float(task == "a"), phase=job) for task in ("a", "b") for job in ("one", "two")]
    summary = summarise(4, episodes)
    assert summary.samples == 1
    assert [part.over_scored.method for part in summary.phases] == [Method.WILSON, Method.WILSON]
    assert summary.overall.over_scored.value is None, "jobs are not mixed into one rate"
    assert not [note for note in summary.notes if "several samples" in note]


def test_parts_by_domain_and_phase() -> None:
    episodes = [
        episode("a", 1.0, domain="os"),
        episode("b", 0.0, domain="os"),
        episode("c", 1.0),
        episode("a", 1.0, domain="os", phase="baseline"),
    ]
    plan = [Plan(phase="eval", domain="os", episodes=3), Plan(phase="eval", domain="", episodes=1),
            Plan(phase="eval", domain="vlc", episodes=2), Plan(phase="baseline", domain="os", episodes=1)]  # fmt: skip
    summary = summarise(7, episodes, plan=plan)
    assert {part.name: (part.successes, part.attempted, part.planned) for part in summary.domains} == {
        NO_DOMAIN: (1, 1, 1),
        "os": (2, 3, 4),
        "vlc": (0, 0, 2),
    }
    assert {part.name: (part.attempted, part.planned) for part in summary.phases} == {
        "baseline": (1, 1),
        "eval": (3, 6),
    }
    assert not summary.finished
    assert "not finished: 4 of 7" in summary.notes[0]


def test_a_single_phase_is_not_listed_and_a_plan_that_is_not_known_is_null() -> None:
    summary = summarise(1, [episode(domain="os")])
    assert summary.phases == ()
    assert summary.domains[0].planned is None


@pytest.mark.parametrize(
    ("samples", "successes", "k", "any_of_k", "all_of_k"),
    [
        (5, 2, 1, 0.4, 0.4),
        (5, 2, 2, 0.7, 0.1),  # 1 - 3/10; 1/10
        (5, 2, 4, 1.0, 0.0),  # any four of five hold one of the two
        (10, 3, 4, 1 - 35 / 210, 0.0),
        (8, 6, 2, 1 - 1 / 28, 15 / 28),
        (4, 0, 4, 0.0, 0.0),
        (4, 4, 4, 1.0, 1.0),
    ],
)
def test_pass_at_k_of_one_task(samples: int, successes: int, k: int, any_of_k: float, all_of_k: float) -> None:
    assert any_of(samples, successes, k) == pytest.approx(any_of_k)
    assert all_of(samples, successes, k) == pytest.approx(all_of_k)


def samples(task: str, scores: str) -> list[Episode]:
    return [
        msgspec.structs.replace(each, key=msgspec.structs.replace(each.key, task=task, sample=n))
        for n, each in enumerate(run(scores))
    ]


def test_pass_at_k_leaves_unscored_samples_out_and_says_how_many_tasks_it_used() -> None:
    """n = 4 with c = 2, n = 4 with c = 0, n = 2 (two unscored) with c = 1."""
    rows = summarise(12, samples("a", "1100") + samples("b", "0000") + samples("c", "1-0-")).pass_at_k
    assert [(row.k, row.tasks, row.left_out) for row in rows] == [(1, 3, 0), (2, 3, 0), (4, 2, 1)]
    assert rows[0].any_of_k == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert rows[1].any_of_k == pytest.approx((5 / 6 + 0 + 1) / 3)
    assert rows[1].all_of_k == pytest.approx((1 / 6 + 0 + 0) / 3)
    assert rows[2].any_of_k == pytest.approx(0.5)


def test_pass_at_k_only_for_several_samples_and_not_across_rounds() -> None:
    assert summarise(2, run("10")).pass_at_k == ()
    assert summarise(2, [episode(round=0), episode(round=1)]).pass_at_k == ()
    assert summarise(4, samples("a", "----")).pass_at_k == ()


def test_failures_final_and_retried() -> None:
    outcomes = [
        episode("a"),
        episode("b", 0.0, failure=FailureClass.AGENT),
        episode("c", None, failure=FailureClass.MODEL),
    ]
    retried = [episode("a", None, failure=FailureClass.DESKTOP), episode("c", None, failure=FailureClass.MODEL)]
    stopped = [episode("d", None, failure=FailureClass.CANCELLED)]
    summary = summarise(4, outcomes, retried=[*retried, *stopped])
    assert (summary.retried, summary.stopped, summary.consumption.attempts) == (2, 1, 6)
    assert [(row.failure_class, row.final, row.scored, row.retried) for row in summary.failures] == [
        ("agent", 1, 1, 0),
        ("model", 1, 0, 1),
        ("desktop", 0, 0, 1),
    ]
    assert summary.failures[1].kinds == {"ModelError": 2}
    assert summary.failures[1].example == "broke"
    assert summary.stops == {"failure": 2, "done": 1}


def test_time_cost_tokens_and_steps() -> None:
    outcomes = [
        episode("a", steps=2, desktop="d1", started_at=0, ended_at=40, seconds={"model": 30, "act": 10},
                usage=Usage(prompt_tokens=100, completion_tokens=10, calls=2, cost_usd=0.5)),
        episode("b", steps=4, desktop="d2", started_at=20, ended_at=60, seconds={"model": 10, "act": 30},
                usage=Usage(prompt_tokens=50, completion_tokens=5, calls=1)),
        episode("c", None, failure=FailureClass.SETUP, started_at=1000, ended_at=1010, seconds={"setup": 10}),
    ]  # fmt: skip
    retried = [episode("a", None, failure=FailureClass.DESKTOP, desktop="d2", started_at=1010, ended_at=1020,
                       seconds={"desktop": 10}, usage=Usage(calls=1, cost_usd=0.25))]  # fmt: skip
    summary = summarise(3, outcomes, retried=retried)
    used = summary.consumption
    assert (used.attempts, used.prompt_tokens, used.completion_tokens, used.model_calls) == (4, 150, 15, 4)
    assert (used.cost_usd, used.cost_unknown) == (0.75, 1)  # "c" called no model: its cost is known to be none
    assert (used.steps.total, used.steps.mean, used.steps.p50) == (6, 1.5, 1.0)
    assert used.desktops == 2
    phases = {each.phase: each for each in used.phases}
    assert list(phases) == ["desktop", "setup", "model", "act"]  # the order in which an episode goes through them
    assert (phases["model"].seconds.total, phases["model"].seconds.mean, phases["model"].share) == (40, 10, 0.4)
    assert phases["model"].seconds.p50 == 5
    assert phases["model"].seconds.p95 == pytest.approx(27)  # 10 + 0.85 * 20
    assert summary.wall_s == 80  # 0-60 and 1000-1020: the pause of a resume does not count
    assert summary.episodes_per_minute == pytest.approx(3 / 80 * 60)


def test_an_empty_run() -> None:
    summary = summarise(0, [])
    assert summary.finished
    assert summary.overall.over_attempted.value is None
    assert summary.overall.over_scored.low is None
    assert summary.episodes_per_minute is None
    assert summarise(5, []).finished is False


def test_a_summary_is_written_whole_and_comes_back() -> None:
    summary = summarise(4, run("10-"))
    written = msgspec.json.encode(summary)
    assert msgspec.json.decode(written, type=Summary) == summary
    raw = msgspec.json.decode(msgspec.json.encode(summarise(0, [])))
    assert raw["overall"]["successes"] == 0
    assert raw["overall"]["over_scored"] == {"value": None, "low": None, "high": None, "method": "none"}
    assert raw["consumption"]["cost_usd"] == 0


def test_a_score_is_read_from_the_record_and_nothing_else() -> None:
    timed_out = msgspec.structs.replace(
        episode("a", None, failure=FailureClass.ENV), score=Score(value=1.0, reason="judged as it stood")
    )
    assert outcome_of(timed_out) is Outcome.SUCCESS


def test_the_share_of_turns_that_join_is_over_those_that_could() -> None:
    made = [msgspec.structs.replace(each, joinable=n, joined=n // 2) for n, each in enumerate(run("1011"))]
    assert summarise(4, made).consumption.prefix_held == (0 + 0 + 1 + 1) / (0 + 1 + 2 + 3)
    assert summarise(4, run("1011")).consumption.prefix_held is None, "nobody knows any token ids"
