"""Native metrics on office documents: what upstream's give for the text of a docx and the values of an xlsx.

What they cannot do as upstream does it (see `support`) is upstream's to judge: fuzzy comparison, odt, and every rule of
`compare_table` besides `sheet_name` and `sheet_data`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deskroll.envs.osworld.evaluate.native.office import docx_paragraphs
from deskroll.envs.osworld.evaluate.native.tables import columns
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable
from deskroll.envs.osworld.evaluate.native.workbook import Rows, Workbook

Options = Mapping[str, Any]


def compare_docx_files(result: Any, expected: Any, options: Options) -> float:
    """Whether two documents hold the same text; blanks do not count unless `ignore_blanks` is false."""
    files = _files(result, expected)
    if not all(each.name.endswith(".docx") for each in files):
        raise NotComparable(f"compare_docx_files compares docx files here, not {files[0].name!r}; upstream's does more")
    texts = [docx_paragraphs(each) for each in files]
    if options.get("ignore_order"):
        texts = [sorted(each) for each in texts]
    if options.get("delete_empty_lines"):
        texts = [[line for line in each if line.strip()] for each in texts]
    if options.get("ignore_blanks", True):
        texts = [[re.sub(r"\s+", " ", "\n".join(each)).strip()] for each in texts]
    if options.get("ignore_case"):
        texts = [[line.lower() for line in each] for each in texts]
    return float(texts[0] == texts[1])


def compare_table(result: Any, expected: Any, options: Options) -> float:
    """Whether every rule holds: `sheet_name` for the sheets' names, `sheet_data` for the values of two sheets."""
    books = [Workbook(each) for each in _files(result, expected)]
    return float(all(_holds(rule, *books) for rule in options["rules"]))


def _holds(rule: Options, result: Workbook, expected: Workbook) -> bool:
    if rule["type"] == "sheet_name":
        return result.names == expected.names
    left = _sheet(rule["sheet_idx0"], result, expected)
    if left is None:
        return False
    right = _sheet(rule["sheet_idx1"], result, expected)
    if right is None and str(rule["sheet_idx1"]).startswith("E"):
        raise Unreadable(f"what is expected has no sheet {rule['sheet_idx1']!r}")
    digits = rule.get("precision", 4)
    return right is not None and columns(left, digits) == columns(right, digits)


def _sheet(index: object, result: Workbook, expected: Workbook) -> Rows | None:
    """0 and RI0 are the first sheet of the result, EI0 of what is expected; RN and EN are followed by a name.

    None where there is no such sheet; those before the first are counted from the last.
    """
    text = f"RI{int(index)}" if isinstance(index, int) else str(index)
    book = {"R": result, "E": expected}.get(text[:1])
    if book is None or text[1:2] not in ("I", "N"):
        raise NotComparable(f"compare_table: sheet_idx is {index!r}; allowed: a number, or RI0, RNname, EI0, ENname")
    try:
        name = text[2:] if text[1] == "N" else book.names[int(text[2:])]
    except (ValueError, IndexError):
        return None
    return book.rows(name) if name in book.names else None


def _files(result: Any, expected: Any) -> tuple[File, File]:
    if not isinstance(result, File) or not isinstance(expected, File):
        raise NotComparable("evaluator.result and evaluator.expected must each give a file")
    return result, expected
