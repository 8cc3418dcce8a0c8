"""Native metrics on office documents: what upstream's give for the text of a docx and the values of an xlsx.

What they cannot do as upstream does it (see `support`) is upstream's to judge: fuzzy comparison, odt, and every rule of
`compare_table` besides `sheet_name` and `sheet_data`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deskroll.envs.osworld.evaluate.native.office import Cell, Rows, docx_paragraphs, xlsx_sheets
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable

Options = Mapping[str, Any]
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MISSING = {"", "#N/A", "N/A", "NA", "NULL", "null", "NaN", "nan", "None", "n/a", "<NA>"}
"""What upstream's reader takes for an empty cell."""


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
    files = _files(result, expected)
    sheets = [xlsx_sheets(each) for each in files]
    return float(all(_holds(rule, *sheets) for rule in options["rules"]))


def _holds(rule: Options, result: Mapping[str, Rows], expected: Mapping[str, Rows]) -> bool:
    if rule["type"] == "sheet_name":
        return list(result) == list(expected)
    left, right = (_sheet(rule[name], result, expected) for name in ("sheet_idx0", "sheet_idx1"))
    if right is None:
        raise NotComparable(f"compare_table: there is no sheet {rule['sheet_idx1']!r}")
    return left is not None and _rounded(left, rule.get("precision", 4)) == _rounded(right, rule.get("precision", 4))


def _sheet(index: object, result: Mapping[str, Rows], expected: Mapping[str, Rows]) -> Rows | None:
    """0 and RI0 are the first sheet of the result, EI0 of what is expected; RN and EN are followed by a name."""
    text = f"RI{index}" if isinstance(index, int) else str(index)
    book = {"R": result, "E": expected}.get(text[:1])
    if book is None or text[1:2] not in ("I", "N"):
        raise NotComparable(f"compare_table: sheet_idx is {index!r}; allowed: a number, or RI0, RNname, EI0, ENname")
    if text[1] == "N":
        return book.get(text[2:])
    place = int(text[2:])
    return list(book.values())[place] if place < len(book) else None


def _rounded(rows: Rows, digits: int) -> list[list[Cell]]:
    """By columns, the headings apart: upstream's reader rounds a column if all of it can be taken for numbers."""
    columns = [[_plain(cell) for cell in column] for column in zip(*rows, strict=True)]
    return [[*column[:1], *_column(column[1:], digits)] for column in columns]


def _column(cells: list[Cell], digits: int) -> list[Cell]:
    if not all(_NUMBER.fullmatch(cell) if isinstance(cell, str) else not isinstance(cell, bool) for cell in cells):
        return cells
    return [None if cell is None else round(float(cell), digits) for cell in cells]


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, str) and cell in _MISSING else cell


def _files(result: Any, expected: Any) -> tuple[File, File]:
    if not isinstance(result, File) or not isinstance(expected, File):
        raise NotComparable("evaluator.result and evaluator.expected must each give a file")
    return result, expected
