"""Native metrics on JSON: files of settings, values that a getter found, a browser's bookmarks.

Each judges as upstream's of that name does. Where a value of the desktop is of a shape that upstream's stumbles over,
it scores 0.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from deskroll.envs.osworld.evaluate.native.jsons import json_of
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable, file_of, rules_of

Options = Mapping[str, Any]
_STUMBLES = (LookupError, TypeError, ValueError, AttributeError, re.error, NotImplementedError)
"""What upstream's code catches, and takes for a 0."""
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "le", "lt", "ge", "gt")
}
_FAILED = "__EVALUATION_FAILED__"


def check_json(result: Any, expected: Any, options: Options) -> float:
    """Whether the values at all paths in `expect` match their rules, and those in `unexpect` do not."""
    found = json_of(file_of(result, "result"))
    rules = rules_of(expected)
    try:
        wanted = all(_matches(_value(found, rule["key"]), rule) for rule in rules.get("expect", ()))
        unwanted = any(_matches(_value_or_none(found, rule["key"]), rule) for rule in rules.get("unexpect", ()))
    except _STUMBLES:
        return 0.0
    return float(wanted and not unwanted)


def _value(value: Any, path: Any) -> Any:
    for step in path:
        value = value[step]
    return value


def _value_or_none(value: Any, path: Any) -> Any:
    try:
        return _value(value, path)
    except (KeyError, TypeError):
        return None


def _matches(value: Any, rule: Mapping[str, Any]) -> bool:
    """By the rule's method: `eq` and the like, `re.FLAGS`, `approx:0.1`, `range.te`, `str_list_eq`, `str_set_eq`."""
    method, wanted = rule["method"], rule["ref"]
    if method.startswith("re"):
        flags = (getattr(re, name) for name in method.split(".")[1:])
        return re.search(wanted, value, functools.reduce(operator.or_, flags, re.RegexFlag(0))) is not None
    if method in _ORDERS:
        return bool(_ORDERS[method](value, wanted))
    if method.startswith("approx"):
        return _is_near(value, wanted, float(method.split(":")[1]))
    if method.startswith("range."):
        low, high = (_ORDERS[f"l{letter}"] for letter in method[6:8])
        return bool(low(wanted[0], value) and high(value, wanted[1]))
    if method in ("str_list_eq", "str_set_eq"):
        gather: Callable[[Any], Any] = list if method == "str_list_eq" else set
        return bool(gather(value.strip("\"'").split(",")) == gather(wanted))
    raise NotImplementedError(method)


def _is_near(value: Any, wanted: float, most: float) -> bool:
    try:
        return abs(float(value) - wanted) <= most
    except (ValueError, TypeError):
        return False


def check_json_settings(result: Any, expected: Any, options: Options) -> float:
    """Whether a file's object has all that is expected, at its top."""
    wanted = rules_of(expected)["expected"]
    found = json_of(file_of(result, "result"))
    held = found if isinstance(found, dict) else {}
    return float(all(key in held and held[key] == wanted[key] for key in wanted))


def check_json_keybindings(result: Any, expected: Any, options: Options) -> float:
    """Whether a file's list has an entry; a first line that is none of it (VS Code's comment) does not count."""
    wanted = rules_of(expected)["expected"]
    file = file_of(result, "result")
    _, _, rest = file.data.partition(b"\n")
    for data in (file.data, rest):
        try:
            found = json_of(File(name=file.name, data=data))
        except Unreadable:
            continue
        if isinstance(found, list):
            return float(wanted in found)
    return 0.0


def check_direct_json_object(result: Any, expected: Any, options: Options) -> float:
    """Whether an object, or a text that is one, has the expected values; `expect_in_result`: has them among others."""
    if isinstance(result, File):
        raise NotComparable("evaluator.result must give an object, or a text that is one; a file is neither")
    rules = rules_of(expected)
    found = _object(result) if isinstance(result, str) else result
    try:
        wanted = rules["expected"]
        if any(value == _FAILED for value in wanted.values()):
            return 0.0
        holds = _is_among if rules.get("expect_in_result", False) else _is_equal
        unordered = not rules.get("expect_in_result", False) and wanted.get("ignore_list_order", False)
        return float(all((_is_permuted if unordered else holds)(found.get(key), wanted[key]) for key in wanted))
    except _STUMBLES:
        return 0.0


def _object(text: str) -> Any:
    try:
        return json.loads(text.strip().replace("'", '"'))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"what was found is no JSON: {error}") from None


def _is_equal(found: Any, wanted: Any) -> bool:
    return bool(found == wanted)


def _is_permuted(found: Any, wanted: Any) -> bool:
    return sorted(found) == sorted(wanted)


def _is_among(found: Any, wanted: Any) -> bool:
    """A list: one of it is found; a text: it is part of what is found; nothing else is."""
    if isinstance(wanted, list):
        choices = found if isinstance(found, list) else [found] if isinstance(found, str) else []
        return any(each in choices for each in wanted)
    return isinstance(wanted, str) and wanted in found


def is_expected_bookmarks(result: Any, expected: Any, options: Options) -> float:
    """Whether a browser's bookmark bar (`roots` of its file) has just these folders, or just these pages."""
    rules = rules_of(expected)
    names = _BOOKMARKS.get(rules["type"])
    if names is None:
        raise NotComparable(f"is_expected_bookmarks: type is {rules['type']!r}; allowed: {', '.join(_BOOKMARKS)}")
    kind, field, wanted = names
    if not result:
        return 0.0
    try:
        entries = result["bookmark_bar"]["children"]
        if rules["type"] == _AUTHORS:
            folders = [each for each in entries if each["type"] == "folder" and each["name"] == "Liked Authors"]
            if not folders:
                return 0.0
            entries = folders[0]["children"]
        found = {each[field] for each in entries if each["type"] == kind}
    except (LookupError, TypeError):
        return 0.0  # these are no bookmarks
    choices = [[each] if isinstance(each, str) else each for each in rules[wanted]]
    return float(any(found == set(each) for each in itertools.product(*choices)))


_AUTHORS = "liked_authors_websites_urls"
_BOOKMARKS = {
    "bookmark_bar_folders_names": ("folder", "name", "names"),
    "bookmark_bar_websites_urls": ("url", "url", "urls"),
    _AUTHORS: ("url", "url", "urls"),
}
"""What each rule looks at: entries of a kind, by a field, compared with the rule's list."""
