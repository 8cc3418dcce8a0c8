"""Words: what texts and queries are compared by."""

from __future__ import annotations

import time

import pytest

from deskroll.envs.words import words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Bees' Wings_2", ["bee", "wing", "2"]),
        ("Straße ＡＢＣ ﬁne", ["strasse", "abc", "fine"]),
        ("绿茶 tea", ["绿", "茶", "绿茶", "tea"]),
        ("時々・カメラ", ["時", "々", "時々", "カ", "メ", "ラ", "カメ", "メラ"]),
        ("한국어 API", ["한", "국", "어", "한국", "국어", "api"]),
        ("berries glass bus his horses", ["berry", "glass", "bus", "his", "horse"]),
        ("--- ... !", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert words(text, stem=True) == found


def test_words_as_they_are() -> None:
    assert words("bees berries boxes", stem=False) == ["bees", "berries", "boxes"]


PAIRS = """
box boxes, church churches, bus buses, dish dishes, glass glasses, hero heroes, potato potatoes, class classes,
wolf wolves, knife knives, wife wives, life lives, leaf leaves, shelf shelves, bookshelf bookshelves, thief thieves,
half halves, valve valves, wave waves, olive olives, roof roofs, twelve twelves, olive olives,
city cities, key keys, movie movies, cookie cookies, tie ties, toy toys,
house houses, horse horses, case cases, base bases, basis bases, phase phases, rose roses, nose noses, cause causes,
use uses, excuse excuses, course courses, exercise exercises, sense senses, disease diseases, purpose purposes,
virus viruses, status statuses, campus campuses, octopus octopuses, gas gases, lens lenses, bias biases, alias aliases,
iris irises, analysis analyses, crisis crises, hypothesis hypotheses, diagnosis diagnoses, emphasis emphases,
axis axes, axe axes, tax taxes, index indexes, index indices, matrix matrices, prize prizes, size sizes,
quiz quizzes, buzz buzzes, waltz waltzes, boss bosses, process processes, match matches, beach beaches,
cache caches, headache headaches, shoe shoes, toe toes, canoe canoes, echo echoes, photo photos, radio radios,
mango mangoes, mango mangos, taxi taxis, api apis, menu menus, gpu gpus, pc pcs, url urls,
man men, woman women, child children, mouse mice, foot feet, tree trees, employee employees, café cafés,
image images, bridge bridges, price prices, file files, series series, species species
"""


@pytest.mark.parametrize("pair", [tuple(each.split()) for each in PAIRS.split(",")], ids=" ".join)
def test_a_plural_is_found_by_its_singular(pair: tuple[str, str]) -> None:
    single, plural = pair
    assert words(plural, stem=True) == words(single, stem=True)
    assert words(plural.upper(), stem=True) == words(single, stem=True)


@pytest.mark.parametrize("pair", ["plan plane", "car care", "new news", "save safe", "mary marie", "the these"])
def test_words_that_are_no_plurals_of_each_other_stay_apart(pair: str) -> None:
    first, second = words(pair, stem=True)
    assert first != second


@pytest.mark.parametrize("unit", ["s", "es ", "ß", "茶", "a_", "\u0301a"])
def test_time_grows_with_the_length_of_a_text_and_no_faster(unit: str) -> None:
    began = time.process_time()
    words(unit * 300_000, stem=True)
    assert time.process_time() - began < 20
