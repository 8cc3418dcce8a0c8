"""Tags: `tag_3` in pyautogui's code, a variable that holds the point of mark 3, as in OSWorld.

Guarantees: names alone are tags, never a part of a text. What is plain calls with the points in their place becomes
these calls; any other source stays as it is, with a line before it that gives the tags that it uses their values.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence

from deskroll.actions import Action, Script, pyautogui_code
from deskroll.errors import ActionError

Point = tuple[int, int]
Marks = Sequence[Point]
"""The pixel that each mark stands for; the first one is mark 1."""
_TAG = re.compile(r"tag_([0-9]{1,4})")


def place_of(number: object, marks: Marks | None) -> Point:
    """The pixel of a mark; `ActionError` where there is none of that number."""
    count = len(marks or ())
    if marks is None or not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= count:
        there = f"allowed: 1 to {count}" if count else "nothing is marked on this screen: give coordinates"
        raise ActionError(f"mark is {str(number)[:40]}; {there}")
    return marks[number - 1]


def decode_tagged(source: str, width: int, height: int, marks: Marks) -> list[Action]:
    """The actions of a source that may name marks."""
    if source[:1].isspace():
        source = textwrap.dedent(source)
    body = pyautogui_code.parse(source)
    tags = _used(body, marks)
    try:
        if tags:
            actions = pyautogui_code.decode(_filled(body, tags), width, height)
            if not any(isinstance(each, Script) for each in actions):
                return actions
    except (ValueError, RecursionError, MemoryError):
        tags = {}  # decode knows how to say it
    given = "; ".join(f"{name}=({x}, {y})" for name, (x, y) in sorted(tags.items()))
    return pyautogui_code.decode(f"{given}\n{source}" if given else source, width, height)


def _used(body: Sequence[ast.stmt], marks: Marks) -> dict[str, Point]:
    """The tags that a source names, and does not give a value itself."""
    named, own = dict[str, int](), set[str]()
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if found := _TAG.fullmatch(name):
                named[name] = int(found[1])
            case ast.Name(id=name) | ast.arg(arg=name):
                own.add(name)
    return {name: place_of(number, marks) for name, number in named.items() if name not in own}


def _filled(body: Sequence[ast.stmt], tags: Mapping[str, Point]) -> str:
    """The source with points for tags, each statement in the line in which it stood."""
    lines: dict[int, list[str]] = {}
    for statement in body:
        filled = _Filled(tags).visit(statement)
        lines.setdefault(statement.lineno, []).append(ast.unparse(filled))
    return "\n".join("; ".join(lines.get(n, ())) for n in range(1, max(lines, default=0) + 1))


class _Filled(ast.NodeTransformer):
    """Puts points in the place of tags: all of one, one coordinate of it, or both as two arguments."""

    def __init__(self, tags: Mapping[str, Point]) -> None:
        self._tags = tags

    def visit_Call(self, node: ast.Call) -> ast.AST:
        arguments: list[ast.expr] = []
        for each in node.args:
            match each:
                case ast.Starred(value=ast.Name(id=name)) if name in self._tags:
                    arguments += [ast.Constant(value) for value in self._tags[name]]
                case _:
                    arguments.append(each)
        node.args = arguments
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(axis))) if name in self._tags:
                if axis in (0, 1):
                    return ast.Constant(self._tags[name][axis])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self._tags:
            return node
        return ast.Tuple([ast.Constant(value) for value in self._tags[node.id]], ast.Load())
