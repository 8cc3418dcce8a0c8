"""The words by which texts and queries are compared: NFKC, case folded, CJK as single and paired characters.

With `stem` an English noun and its plural are one word: regular plurals by rule, the usual irregular ones by name.
Words of other languages may lose an s, in texts and queries alike. Time grows with the length of the text, no faster.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from itertools import pairwise

VERSION = 2
"""Goes up whenever the same text gives other words: what is kept on disk follows from it."""
_CJK = (
    r"\u3005-\u3007\u3031-\u3035\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IS_CJK = re.compile(rf"[{_CJK}]")
_ASCII = re.compile(r"[a-z0-9]+")
_LONGEST_WORD = 64


def words(text: str, *, stem: bool) -> list[str]:
    """Every word in order; CJK writing has no spaces, so each of its characters counts, and each pair of neighbours."""
    if text.isascii():  # several times as fast, and most texts are
        found = _ASCII.findall(text.lower())
    else:
        found = []
        for run in _RUN.findall(unicodedata.normalize("NFKC", text).casefold()):
            if _IS_CJK.match(run):
                found += run
                found += (first + second for first, second in pairwise(run))
            else:
                found.append(run)
    return [_singular(word[:_LONGEST_WORD]) if stem else word[:_LONGEST_WORD] for word in found]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PAIRS = """
men man, women woman, children child, feet foot, teeth tooth, geese goose, mice mouse, lice louse, oxen ox,
criteria criterion, phenomena phenomenon, bacteria bacterium, indices index, matrices matrix, vertices vertex,
appendices appendix, alumni alumnus, fungi fungus, cacti cactus, nuclei nucleus, radii radius, stimuli stimulus,
larvae larva, formulae formula, antennae antenna, vertebrae vertebra, algae alga,
calves calf, elves elf, halves half, hooves hoof, leaves leaf, lives life, sheaves sheaf, wharves wharf,
goes go, undergoes undergo, gasses gas, busses bus, quizzes quiz, whizzes whiz,
axis axe, basis base, ellipsis ellipse,
ads ad, cds cd, ids id, pcs pc, tvs tv, uis ui, vms vm
"""
_KEPT = _set("""
news series species atlas bias alias canvas gas lens pancreas christmas asbestos chaos cosmos rhinoceros thermos
biceps triceps forceps summons iris trellis mantis pelvis ibis penis metropolis clematis marquis
""")
"""Singulars that end in s, besides those in -ss, -us and -sis."""
_DROP_S = _set("""
menus gurus emus gnus haikus tutus plateaus bureaus tableaus bayous caribous cpus gpus tpus npus hindus zulus
abuses reuses misuses overuses excuses accuses muses amuses ruses peruses recluses hypotenuses masseuses
movies cookies zombies calories brownies rookies selfies genies pixies prairies smoothies hoodies hippies junkies
goalies newbies freebies groupies budgies collies eyries magpies menageries neckties camaraderies lingeries reveries
sorties talkies cowries birdies bogies
shoes canoes oboes aloes floes throes tiptoes horseshoes snowshoes overshoes backhoes mistletoes
aches headaches toothaches backaches heartaches stomachaches caches niches moustaches mustaches avalanches quiches
pastiches creches psyches cliches clichés brioches douches apaches porsches
posses finesses crevasses impasses mousses lacrosses
""")
"""Plurals whose singular is what is left without the s, against the rules for their endings."""
_IRREGULAR: dict[str, str] = dict(each.split() for each in _PAIRS.split(","))
"""By name. Where two nouns share a plural (axes, bases, ellipses), both become one word."""
_TO_F = {"wolves": "f", "selves": "f", "shelves": "f", "thieves": "f", "loaves": "f", "scarves": "f", "dwarves": "f",
         "wives": "fe", "knives": "fe"}  # fmt: skip
_TO_SIS = ("lyses", "theses", "crises", "oases", "gnoses", "opses", "phases", "uroses", "sychoses", "orphoses")
_NO_SIS = ("phases", "copses")
_DROP_ES = ("sses", "shes", "ches", "xes", "tzes", "zzes", "oes")


@functools.lru_cache(maxsize=2**15)
def _singular(word: str) -> str:
    """A plural's singular; other words as they are."""
    if (single := _IRREGULAR.get(word)) is not None:
        return single
    if len(word) < 4 or word[-1] != "s" or word in _KEPT:
        return word
    if not word.endswith("es") or len(word) == 4 or word in _DROP_S:
        return word if word.endswith(("ss", "us", "sis")) and word not in _DROP_S else word[:-1]
    return _singular_of_es(word)


def _singular_of_es(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("ves"):
        return next((word[:-3] + end for plural, end in _TO_F.items() if word.endswith(plural)), word[:-1])
    if word.endswith(_TO_SIS) and word not in _NO_SIS:
        return word[:-2] + "is"
    if word.endswith(_DROP_ES) or word[:-2] in _KEPT:
        return word[:-2]
    if word.endswith("uses") and not word.endswith(("ouses", "auses", "fuses")):
        return word[:-2]
    return word[:-1]
