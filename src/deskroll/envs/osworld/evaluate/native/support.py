"""Which parts native metrics judge as upstream's do; the others are upstream's to judge."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence

from deskroll.envs.osworld.evaluate.native import images, pptx_files
from deskroll.envs.osworld.evaluate.parts import Getter, Part

_TABLE_RULES = ("sheet_name", "sheet_data")


def supports(part: Part) -> bool:
    """Whether the part's metric does all that the part asks of it."""
    asked = _ASKED.get(part.func)
    return asked is None or asked(part)


def _docx(part: Part) -> bool:
    """Not fuzzy; and docx alone, as upstream's goes by the files' names."""
    fuzzy = part.options.get("fuzzy_match") or part.options.get("content_only")
    return not fuzzy and all(_name(getter).endswith(".docx") for getter in part.getters)


def _name(getter: Getter) -> str:
    """What a getter of one file will call it."""
    return str(getter.config.get("dest") or posixpath.basename(str(getter.config.get("path", ""))))


def _table(part: Part) -> bool:
    rules = part.options.get("rules")
    return isinstance(rules, Sequence) and all(
        isinstance(rule, Mapping) and rule.get("type") in _TABLE_RULES for rule in rules
    )


def _json(part: Part) -> bool:
    """Not YAML, which can be written so that a comparison never ends; not ranges of cells."""
    rules = part.expected.config.get("rules") if part.expected else None
    given = [rules.get(name) or () for name in ("expect", "unexpect")] if isinstance(rules, Mapping) else []
    methods = [rule.get("method") for each in given for rule in each if isinstance(rule, Mapping)]
    return not part.options.get("is_yaml") and "spreadsheet_range" not in methods


def _image(part: Part) -> bool:
    return images.has_libraries()


_ASKED: Mapping[str, Callable[[Part], bool]] = {
    "compare_docx_files": _docx,
    "compare_table": _table,
    "compare_pptx_files": lambda part: pptx_files.is_supported(part.options),
    "check_json": _json,
    "check_image_size": _image,
    "check_image_mirror": _image,
    "check_structure_sim": _image,
    "compare_images": _image,
    "compare_image_list": _image,
}
