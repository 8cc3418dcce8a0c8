"""Metrics on texts: what counts as the same, and that nothing is ever a silent 0."""

from __future__ import annotations

import pytest

from deskroll.errors import ConfigError
from deskroll.scoring import METRICS, score_answer

SAME = [
    ("42", "42"), (" 42\n", "42"), ("Paris", "PARIS"), ("a  b\tc", "a b c"), ("Straße", "STRASSE"), ("４２", "42"),
    ("ﬁne", "fine"), ("caf\u0065\u0301", "caf\u00e9"), ("", ""), ("a\u00a0b", "a b"),
]  # fmt: skip
DIFFERENT = [("42.0", "42"), ("4 2", "42"), ("the answer is 42", "42"), ("", "42"), ("cafe", "café"), ("-1", "1")]


@pytest.mark.parametrize(("answer", "reference"), SAME)
def test_exact_match_forgives_case_width_and_white_space(answer: str, reference: str) -> None:
    score = score_answer("exact_match", answer, reference)
    assert (score.value, score.reason) == (1.0, "exact_match with the reference answer")


@pytest.mark.parametrize(("answer", "reference"), DIFFERENT)
def test_exact_match_forgives_nothing_else(answer: str, reference: str) -> None:
    assert score_answer("exact_match", answer, reference).value == 0.0


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [("The answer is  FORTY two.", "forty two", 1.0), ("42", "42", 1.0), ("4 2", "42", 0.0), ("anything", "", 0.0),
     ("anything", "  ", 0.0), ("", "42", 0.0)],
)  # fmt: skip
def test_contains_answer(answer: str, reference: str, value: float) -> None:
    assert score_answer("contains_answer", answer, reference).value == value


@pytest.mark.parametrize("metric", METRICS)
def test_no_answer_is_wrong_and_no_reference_is_no_score(metric: str) -> None:
    wrong = score_answer(metric, None, "42")
    assert (wrong.value, wrong.reason) == (0.0, "no answer was given")
    unknown = score_answer(metric, "42", None)
    assert (unknown.value, unknown.scored, unknown.reason) == (None, False, "the task has no reference answer")
    assert score_answer(metric, None, None).value is None


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(ConfigError, match="evaluation_metric is 'f1'; allowed: exact_match, contains_answer"):
        score_answer("f1", "a", "a")
