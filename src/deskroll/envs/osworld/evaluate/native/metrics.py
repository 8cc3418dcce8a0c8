"""Native metrics: plain text, lists, settings. Each gives what upstream's metric of that name gives, but for this.

`exact_match` does not count the white space around a text, which a command's output ends in, and it compares a file's
text, where upstream's would compare its name; so does `check_include_exclude`. Where upstream's breaks down over what
it is given, ours gives 0 or breaks down, too. `check_play_and_exit` is ours alone.
"""

from __future__ import annotations

import difflib
import io
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deskroll.envs.osworld.evaluate.native.documents import compare_docx_files, compare_table
from deskroll.envs.osworld.evaluate.native.image_metrics import (
    check_image_file_size,
    check_image_mirror,
    check_image_size,
    check_structure_sim,
    compare_image_list,
    compare_images,
)
from deskroll.envs.osworld.evaluate.native.json_metrics import (
    check_direct_json_object,
    check_json,
    check_json_keybindings,
    check_json_settings,
    is_expected_bookmarks,
)
from deskroll.envs.osworld.evaluate.native.pdf import pdf_pages
from deskroll.envs.osworld.evaluate.native.pptx_files import compare_pptx_files
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable, file_of, rules_of

Options = Mapping[str, Any]
Measure = Callable[[Any, Any, Options], float]


def _exact_match(result: Any, expected: Any, options: Options) -> float:
    wanted = rules_of(expected).get("expected", "")
    if isinstance(result, File):
        result = result.data.decode(errors="replace")
    if isinstance(result, str):
        return float(result.strip() == str(wanted).strip())
    return float(result == wanted)


def _check_include_exclude(result: Any, expected: Any, options: Options) -> float:
    rules = rules_of(expected)
    text = result.text() if isinstance(result, File) else result
    if not isinstance(text, str):
        return 0.0
    included = all(each in text for each in rules.get("include", ()))
    return float(included and not any(each in text for each in rules.get("exclude", ())))


def _match_in_list(result: Any, expected: Any, options: Options) -> float:
    return float(result in rules_of(expected).get("expected", ()))


def _is_in_list(result: Any, expected: Any, options: Options) -> float:
    wanted = rules_of(expected).get("expected")
    if isinstance(result, str) and not isinstance(wanted, str):
        return 0.0
    return float(isinstance(result, list | dict | str) and wanted in result)


def _literal_match(result: Any, expected: Any, options: Options) -> float:
    fold = str.lower if options.get("ignore_case") else str
    if options.get("type", "str") == "str":
        return float(fold(str(result)) == fold(str(expected)))
    if not all(isinstance(each, Sequence) and not isinstance(each, str) for each in (result, expected)):
        return 0.0
    return float([fold(str(each)) for each in result] == [fold(str(each)) for each in expected])


def _compare_text_file(result: Any, expected: Any, options: Options) -> float:
    texts = [file_of(result, "result").text(), file_of(expected, "expected").text()]
    if options.get("ignore_blanks"):
        texts = [re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", each).strip()) for each in texts]
    if options.get("ignore_case"):
        texts = [each.lower() for each in texts]
    return float(texts[0] == texts[1])


def _diff_text_file(result: Any, expected: Any, options: Options) -> float:
    a, b = (file_of(each, what).text().splitlines() for each, what in ((result, "result"), (expected, "expected")))
    return difflib.SequenceMatcher(a=a, b=b).ratio()


def _check_list(result: Any, expected: Any, options: Options) -> float:
    rules = rules_of(expected)
    lines = list(io.StringIO(file_of(result, "result").text()))  # not by splitlines, which ends lines at form feeds
    found = all(any(re.search(each, line) for line in lines) for each in rules.get("expect", ()))
    return float(found and not any(re.search(each, line) for each in rules.get("unexpect", ()) for line in lines))


def _file_contains(result: Any, expected: Any, options: Options) -> float:
    text = file_of(result, "result").text()
    return float(all(each in text for each in rules_of(expected).get("expected", ())))


def _compare_csv(result: Any, expected: Any, options: Options) -> float:
    choices = expected if isinstance(expected, list) else [expected]
    lines = _lines(file_of(result, "result"), options)
    return float(any(lines == _lines(file_of(each, "expected"), options) for each in choices if each is not None))


def _lines(file: File, options: Options) -> list[str]:
    """Text in another encoding than UTF-8 is read as Latin-1, as upstream does."""
    try:
        lines = file.text().splitlines()
    except Unreadable:
        lines = file.data.decode("latin-1").splitlines()
    if not options.get("strict", True):
        lines = [each.strip() for each in lines]
    return [each.lower() for each in lines] if options.get("ignore_case") else lines


def _check_play_and_exit(result: Any, expected: Any, options: Options) -> float:
    """Whether VLC ends after playing (`play-and-exit`; not unless its settings say so)."""
    found = "0"
    for line in io.StringIO(file_of(result, "result").text()):
        if "play-and-exit=" in line:
            found = line.rpartition("=")[2].strip()
    return float(found == str(rules_of(expected).get("expected_play_and_exit")))


def _check_pdf_pages(result: Any, expected: Any, options: Options) -> float:
    """Whether the number of pages stands in a `relation` (`eq`, `lt`, ...) to `ref_value`."""
    rules = rules_of(expected)
    compare = {name: getattr(operator, name) for name in ("eq", "ne", "le", "lt", "ge", "gt")}[rules["relation"]]
    return float(compare(pdf_pages(file_of(result, "result")), rules["ref_value"]))


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
    "compare_pptx_files": compare_pptx_files,
    "check_pdf_pages": _check_pdf_pages,
    "check_image_size": check_image_size,
    "check_image_file_size": check_image_file_size,
    "check_image_mirror": check_image_mirror,
    "check_structure_sim": check_structure_sim,
    "compare_images": compare_images,
    "compare_image_list": compare_image_list,
    "check_json": check_json,
    "check_json_settings": check_json_settings,
    "check_json_keybindings": check_json_keybindings,
    "check_direct_json_object": check_direct_json_object,
    "is_expected_bookmarks": is_expected_bookmarks,
    "check_play_and_exit": _check_play_and_exit,
}
"""By OSWorld's names."""
