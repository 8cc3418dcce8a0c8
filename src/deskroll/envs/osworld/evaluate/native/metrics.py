"""Native metrics: plain text, lists, settings. Each gives what upstream's metric of that name gives.

The one difference: `exact_match` does not count the white space around a text, which a command's output ends in; and
it compares a file's text, where upstream's would compare its name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deskroll.envs.osworld.evaluate.native.documents import compare_docx_files, compare_table
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable

Options = Mapping[str, Any]
Measure = Callable[[Any, Any, Options], float]


def _rules(expected: object) -> Mapping[str, Any]:
    if not isinstance(expected, Mapping):
        raise NotComparable("evaluator.expected must be of type rule, with rules")
    return expected


def _file(given: object, what: str) -> File:
    if not isinstance(given, File):
        raise NotComparable(f"evaluator.{what} must give a file")
    return given


def _exact_match(result: Any, expected: Any, options: Options) -> float:
    wanted = _rules(expected).get("expected", "")
    if isinstance(result, File):
        result = result.data.decode(errors="replace")
    if isinstance(result, str):
        return float(result.strip() == str(wanted).strip())
    return float(result == wanted)


def _check_include_exclude(result: Any, expected: Any, options: Options) -> float:
    rules = _rules(expected)
    text = result.text() if isinstance(result, File) else result
    included = all(each in text for each in rules.get("include", ()))
    return float(included and not any(each in text for each in rules.get("exclude", ())))


def _match_in_list(result: Any, expected: Any, options: Options) -> float:
    return float(result in _rules(expected).get("expected", ()))


def _is_in_list(result: Any, expected: Any, options: Options) -> float:
    return float(_rules(expected).get("expected") in result)


def _literal_match(result: Any, expected: Any, options: Options) -> float:
    fold = str.lower if options.get("ignore_case") else str
    if options.get("type", "str") == "str":
        return float(fold(str(result)) == fold(str(expected)))
    if not all(isinstance(each, Sequence) and not isinstance(each, str) for each in (result, expected)):
        return 0.0
    return float([fold(str(each)) for each in result] == [fold(str(each)) for each in expected])


def _compare_text_file(result: Any, expected: Any, options: Options) -> float:
    texts = [_file(result, "result").text(), _file(expected, "expected").text()]
    if options.get("ignore_blanks"):
        texts = [re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", each).strip()) for each in texts]
    if options.get("ignore_case"):
        texts = [each.lower() for each in texts]
    return float(texts[0] == texts[1])


def _diff_text_file(result: Any, expected: Any, options: Options) -> float:
    a, b = (_file(each, what).text().splitlines() for each, what in ((result, "result"), (expected, "expected")))
    return difflib.SequenceMatcher(a=a, b=b).ratio()


def _check_list(result: Any, expected: Any, options: Options) -> float:
    rules = _rules(expected)
    lines = _file(result, "result").text().splitlines(keepends=True)
    found = all(any(re.search(each, line) for line in lines) for each in rules.get("expect", ()))
    return float(found and not any(re.search(each, line) for each in rules.get("unexpect", ()) for line in lines))


def _file_contains(result: Any, expected: Any, options: Options) -> float:
    text = _file(result, "result").text()
    return float(all(each in text for each in _rules(expected).get("expected", ())))


def _compare_csv(result: Any, expected: Any, options: Options) -> float:
    choices = expected if isinstance(expected, list) else [expected]
    lines = _lines(_file(result, "result"), options)
    return float(any(lines == _lines(_file(each, "expected"), options) for each in choices if each is not None))


def _lines(file: File, options: Options) -> list[str]:
    lines = file.text().splitlines(keepends=True)
    if not options.get("strict", True):
        lines = [each.strip() for each in lines]
    return [each.lower() for each in lines] if options.get("ignore_case") else lines


def _check_play_and_exit(result: Any, expected: Any, options: Options) -> float:
    """Whether VLC ends after playing (`play-and-exit`; not unless its settings say so)."""
    found = "0"
    for line in _file(result, "result").text().splitlines():
        if "play-and-exit=" in line:
            found = line.rpartition("=")[2].strip()
    return float(found == str(_rules(expected).get("expected_play_and_exit")))


METRICS: Mapping[str, Measure] = {
    "exact_match": _exact_match,
    "check_include_exclude": _check_include_exclude,
    "match_in_list": _match_in_list,
    "is_in_list": _is_in_list,
    "literal_match": _literal_match,
    "compare_text_file": _compare_text_file,
    "diff_text_file": _diff_text_file,
    "check_list": _check_list,
    "file_contains": _file_contains,
    "compare_csv": _compare_csv,
    "compare_docx_files": compare_docx_files,
    "compare_table": compare_table,
    "check_play_and_exit": _check_play_and_exit,
}
"""By OSWorld's names."""
