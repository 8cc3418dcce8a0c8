"""Metrics on texts: what counts as the same, and that nothing a text holds makes them slow or wrong."""

from __future__ import annotations

import re
import string
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.scoring import compare
from tests.scoring.hostile import HUGE

TEXTS = ("exact_match", "f1_score", "similarity", "contains_answer")


def value(metric: str, answer: str, reference: str) -> float:
    score = compare(metric, answer, reference)
    assert score.value is not None
    assert score.reason.startswith(f"{metric} with the reference answer")
    return score.value


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("42", "42", 1), (" 42\n", "42", 1), ("42", "\t42 ", 1), ("", "", 1), ("", "  \n", 1), ("a b", "a b", 1),
        ("caf\u0065\u0301", "caf\u00e9", 1), ("北京", "北京", 1), ("\u3000北京\u3000", "北京", 1), ("Ω", "\u2126", 1),
        ("Paris", "PARIS", 0), ("paris", "Paris", 0), ("a  b", "a b", 0), ("４２", "42", 0), ("ﬁne", "fine", 0),
        ("Straße", "STRASSE", 0), ("42.0", "42", 0), ("4 2", "42", 0), ("the answer is 42", "42", 0), ("", "42", 0),
        ("cafe", "café", 0), ("-1", "1", 0), ("北京市", "北京", 0), ("42.", "42", 0), ("\ud800", "\ud800", 1),
        ("e" + "\u0301" * 100, "e" + "\u0301" * 100, 1), ("e" + "\u0301" * 100, "e" + "\u0301" * 101, 0),
    ],
)  # fmt: skip
def test_exact_match_is_the_same_text_but_for_outer_space_and_encoding(
    answer: str, reference: str, expected: float
) -> None:
    assert value("exact_match", answer, reference) == expected


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("the cat sat", "cat sat", 1), ("The Cat!", "cat", 1), ("cat", "dog", 0), ("a cat", "the cat", 1),
        ("cat dog", "cat", 2 / 3), ("cat", "cat dog bird", 0.5), ("cat cat", "cat", 2 / 3), ("dog cat", "cat dog", 1),
        ("北京", "北京", 1), ("北京市", "北京", 0.8), ("在北京", "南京", 0.4), ("東京 Tokyo", "tokyo", 0.5),
        ("don't", "dont", 1), ("don’t", "don't", 1), ("1,000", "1000", 1), ("ＡＢＣ", "abc", 1),
        ("Straße", "strasse", 1),
        ("", "", 1), ("", "cat", 0), ("cat", "", 0), ("A", "A", 1), ("the", "A", 0), ("", "A", 0), ("A", "B", 0),
        ("+", "-", 0), ("+", "+", 1), ("...", "cat", 0), ("서울은", "서울", 0.8), ("caf\u0065\u0301", "CAFÉ", 1),
        ("an answer: the cat", "answer cat", 1), ("zero\u200bwidth", "zerowidth", 1),
    ],
)  # fmt: skip
def test_f1_score_counts_shared_words_as_squad_does(answer: str, reference: str, expected: float) -> None:
    assert value("f1_score", answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("kitten", "kitten", 1), ("kitten", "sitting", 4 / 7), ("Kitten", "KITTEN", 1), ("", "", 1), ("", "abc", 0),
        ("abc", "", 0), ("abc", "abd", 2 / 3), ("abc", "abcd", 0.75), ("abcd", "abc", 0.75), ("a  b", "a b", 1),
        (" a ", "a", 1), ("北京", "北京市", 2 / 3), ("北京", "南京", 0.5), ("ＡＢＣ", "abc", 1), ("ﬁ", "fi", 1),
        ("caf\u0065\u0301", "café", 1), ("cafe", "café", 0.75), ("abc", "xyz", 0), ("a-b", "a\u2212b", 1),
        ("“a”", '"a"', 1), ("\u200babc", "abc", 1), ("ab", "ba", 0), ("\ud800", "\ud800", 1),
    ],
)  # fmt: skip
def test_similarity_is_one_less_the_share_of_edits(answer: str, reference: str, expected: float) -> None:
    assert value("similarity", answer, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The answer is  FORTY two.", "forty two", 1), ("42", "42", 1), ("it is 5.", "5", 1), ("5, 6", "5", 1),
        ("(5)", "5", 1), ("5%", "5", 1), ("$5", "5", 1), ("3-5", "5", 1), ("x = -5.", "-5", 1), ("共5个", "5", 1),
        ("答案是北京。", "北京", 1), ("**Paris**", "paris", 1), ("_Paris_", "Paris", 1), ("C++ is", "c++", 1),
        ("don’t go", "don't", 1), ("ＰＡＲＩＳ", "Paris", 1), ("서울은", "서울", 1), ("v. 1,234.5 m", "1,234.5", 1),
        ("well-known", "known", 1), ("party art", "art", 1), ("New\nYork", "new york", 1), ("−5", "-5", 1),
        ("15", "5", 0), ("51", "5", 0), ("party", "art", 0), ("5.3", "5", 0), ("1,5", "5", 0), ("1,5", "1", 0),
        ("-5", "5", 0), (".5", "5", 0), ("5.3.1", "5.3", 0), ("3.14159", "3.14", 0), ("5km", "5", 0), ("5th", "5", 0),
        ("4 2", "42", 0), ("anything", "", 0), ("anything", "  ", 0), ("", "42", 0), ("", "", 0), ("cafés", "café", 0),
        ("cafe\u0301", "cafe", 0), ("की", "क", 0), ("1234", "1,234", 0), ("Paris", "Paris.", 0), ("a\0b", "\0", 0),
    ],
)  # fmt: skip
def test_contains_answer_finds_whole_words_and_whole_numbers(answer: str, reference: str, expected: float) -> None:
    assert value("contains_answer", answer, reference) == expected


@pytest.mark.parametrize("metric", TEXTS)
@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_take_no_time(metric: str, name: str) -> None:
    text, begun = HUGE[name], time.process_time()
    assert compare(metric, text, "x1").value == pytest.approx(0, abs=1e-5)
    assert compare(metric, text, text[:-1] + "!").value != 1.0
    # It takes about a second at most; what is guarded against would take hours.
    assert time.process_time() - begun < 10


def test_what_was_not_read_is_said_and_never_flatters() -> None:
    text = "abc " * 50_000
    assert compare("exact_match", text, text).value == 1.0
    near = compare("similarity", text + "x", text)
    assert near.value is not None
    assert 0 < near.value < 0.5
    assert near.reason.endswith("only the first 20000 characters were compared, the rest counts as different")
    assert compare("similarity", text, text).value == 1.0
    f1 = compare("f1_score", text, text[:100_000])
    assert f1.value == pytest.approx(50_000 / (50_000 + 100_000 / 6), rel=1e-3)
    assert f1.reason.endswith("only the first 100000 of the answer's 200000 characters were read")
    assert compare("contains_answer", text + "end", "end").value == 0.0
    for metric in ("f1_score", "contains_answer"):
        unscored = compare(metric, text, text)
        assert unscored.value is None
        assert "the reference answer has 200000 characters" in unscored.reason


@given(st.text(), st.text())
def test_a_value_is_between_0_and_1(answer: str, reference: str) -> None:
    for metric in TEXTS:
        assert 0 <= value(metric, answer, reference) <= 1


@given(st.text(), st.text())
def test_order_does_not_matter_where_it_must_not(one: str, other: str) -> None:
    for metric in ("exact_match", "f1_score", "similarity"):
        assert value(metric, one, other) == value(metric, other, one)


def squad_tokens(text: str) -> list[str]:
    """As SQuAD's own evaluation makes them."""
    bare = "".join(each for each in text.lower() if each not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


WORDS = st.lists(st.sampled_from(["a", "The", "cat", "dog's", "x-y", "1.5", "an", "Cat,", "...", "bird"]), max_size=8)


@given(WORDS.map(" ".join), WORDS.map(" ".join))
def test_f1_score_is_squads_own(answer: str, reference: str) -> None:
    given_tokens, wanted = squad_tokens(answer), squad_tokens(reference)
    if given_tokens and wanted:
        shared = sum((Counter(given_tokens) & Counter(wanted)).values())
        precision, recall = shared / len(given_tokens), shared / len(wanted)
        expected = 2 * precision * recall / (precision + recall) if shared else 0.0
        assert value("f1_score", answer, reference) == pytest.approx(expected)


@given(st.text())
def test_a_text_is_itself(text: str) -> None:
    for metric in ("exact_match", "f1_score", "similarity"):
        assert value(metric, text, text) == 1


@given(st.text(alphabet="ab5 .,-京"), st.text(alphabet="ab5 .,-京"), st.text(alphabet="ab5 .,-京"))
def test_what_stands_between_spaces_is_contained(before: str, reference: str, after: str) -> None:
    expected = float(bool(reference.strip()))
    assert value("contains_answer", f"{before} {reference} {after}", reference.strip()) == expected
