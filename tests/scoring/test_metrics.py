"""The six metrics by their names: what is missing is treated alike, and nothing is ever a silent 0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.errors import ConfigError, EvaluatorError
from deskroll.scoring import METRICS, compare, score_answer

PURE = [name for name, metric in METRICS.items() if not metric.judged]


def test_the_names_are_those_that_users_are_promised() -> None:
    assert list(METRICS) == [
        "exact_match", "f1_score", "similarity", "contains_answer", "numeric_match", "llm_judgement",
    ]  # fmt: skip
    assert [name for name in METRICS if name not in PURE] == ["llm_judgement"]
    assert all(name == metric.name and metric.summary for name, metric in METRICS.items())


@pytest.mark.parametrize("metric", METRICS)
async def test_no_answer_is_wrong_and_no_reference_is_no_score(metric: str) -> None:
    wrong = await score_answer(metric, None, "42")
    assert (wrong.value, wrong.reason) == (0.0, "no answer was given")
    unknown = await score_answer(metric, "42", None)
    assert (unknown.value, unknown.scored, unknown.reason) == (None, False, "the task has no reference answer")
    assert (await score_answer(metric, None, None)).value is None


@pytest.mark.parametrize("metric", PURE)
async def test_both_ways_give_the_same(metric: str) -> None:
    for answer in ("42", "it is 42", "43", "", None):
        assert await score_answer(metric, answer, "42") == compare(metric, answer, "42")
    assert compare(metric, "42", "42").value == 1.0


@pytest.mark.parametrize("metric", ["f1", "", "EXACT_MATCH", "exact_match "])
async def test_an_unknown_metric_is_named_with_those_that_exist(metric: str) -> None:
    allowed = f"evaluation_metric is {metric!r}; allowed: exact_match, f1_score, similarity, contains_answer, numeric"
    with pytest.raises(ConfigError, match=allowed):
        compare(metric, "a", "a")
    with pytest.raises(ConfigError, match=allowed):
        await score_answer(metric, None, None)


async def test_a_judgement_without_a_judge_is_an_error_and_no_zero() -> None:
    with pytest.raises(EvaluatorError, match="llm_judgement needs a model that judges"):
        await score_answer("llm_judgement", "42", "42")
    with pytest.raises(EvaluatorError, match="llm_judgement asks a model: use score_answer"):
        compare("llm_judgement", "42", "42")


@pytest.mark.parametrize("metric", PURE)
@pytest.mark.parametrize(("answer", "reference"), [("41", "42"), ("42", "42"), (None, "42"), ("41", None)])
def test_a_score_says_what_was_found_and_what_was_expected(
    metric: str, answer: str | None, reference: str | None
) -> None:
    score = compare(metric, answer, reference)
    assert (score.found, score.expected) == (answer, reference)


@given(st.sampled_from(PURE), st.none() | st.text(), st.none() | st.text())
def test_every_score_has_a_reason(metric: str, answer: str | None, reference: str | None) -> None:
    score = compare(metric, answer, reference)
    assert score.reason
    assert score.value is None or 0 <= score.value <= 1
