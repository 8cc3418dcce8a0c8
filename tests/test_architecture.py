"""docs/architecture.md leads to what is there: its files exist, and define the names that it says they do."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from deskroll.cli.main import cli

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "deskroll"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
FENCE = re.compile(r"```.*?```", re.S)
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?P<file>[\w/-]+\.py)(?::(?P<name>[\w.]+))?")
FOLDER = re.compile(r"[\w/-]+/")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
LEFT_BY_RUNS = re.compile(r"[\w<>/]+(?:\.(?:jsonl?|png)|>/)")
"""Files and folders of a run's folder: `store/paths.py` names them."""
NOTATION = ("file.py:name", "src/deskroll/", "A → B")
SPOKEN = [each for each in CODE.findall(FENCE.sub("", PAGE)) if each not in NOTATION]
"""Every piece of code on the page, but for what explains its notation."""


@functools.cache
def definitions(file: Path) -> frozenset[str]:
    """Everything that a file defines: functions, classes, constants, fields; members as `Class.member`, too."""
    return frozenset(_definitions(ast.parse(file.read_text()), ""))


def _definitions(node: ast.AST, prefix: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        match each:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from _definitions(each, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.Assign(targets=targets):
                yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name


def find(file: str) -> Path | None:
    """A file by its path from src/deskroll/, or from the repository's root."""
    return next((place / file for place in (SOURCE, ROOT) if (place / file).is_file()), None)


@functools.cache
def known_names() -> frozenset[str]:
    """The last part of everything that the source defines, and what it calls its members by: values of enums."""
    names = {name.rpartition(".")[2] for file in SOURCE.rglob("*.py") for name in definitions(file)}
    return frozenset(names | {path.stem for path in SOURCE.rglob("*")} | {"deskroll"})


def glossary() -> list[tuple[str, str]]:
    """Of each row of the glossary that defines a name: the name and its file."""
    return re.findall(r"^\| `(\w+)` \| .* \| `([\w/]+\.py)` \|$", PAGE.partition("\n## Glossary\n")[2], re.M)


def problem(code: str) -> str:
    """What is wrong with a piece of code on the page; empty: nothing."""
    if match := PATH.fullmatch(code):
        file = find(match["file"])
        if file is None:
            return "there is no such file"
        return "" if match["name"] in (None, *definitions(file)) else "that file defines no such thing"
    if FOLDER.fullmatch(code):
        return "" if (SOURCE / code).is_dir() else "there is no such folder"
    if LEFT_BY_RUNS.fullmatch(code):
        return "" if code in (SOURCE / "store" / "paths.py").read_text() else "no run leaves such a file"
    if code.startswith(("deskroll ", "make ")):
        return _command_problem(code)
    if code.startswith("--"):
        return "" if code.startswith("--set") else "no flag but --set is known here"
    if NAME.fullmatch(code.removesuffix("()")):
        unknown = set(code.removesuffix("()").split(".")) - known_names()
        return f"nothing is called {', '.join(sorted(unknown))}" if unknown else ""
    return "a test does not know how to look for that"


def _command_problem(code: str) -> str:
    program, *words = code.split()
    if program == "make":
        return "" if re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M) else "there is no such target"
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            return "there is no such command"
        command = found
    return ""


@pytest.mark.parametrize("code", sorted(set(SPOKEN)))
def test_what_the_page_names_is_there(code: str) -> None:
    assert problem(code) == ""


@pytest.mark.parametrize("code", sorted(set(re.findall(r"[\w/]+\.py", "".join(FENCE.findall(PAGE))))))
def test_a_file_of_the_drawing_is_there(code: str) -> None:
    assert problem(code) == ""


@pytest.mark.parametrize(("name", "file"), glossary())
def test_a_noun_is_defined_where_the_glossary_says(name: str, file: str) -> None:
    assert problem(f"{file}:{name}") == ""


def test_all_of_it_is_looked_at() -> None:
    assert sum(PATH.fullmatch(each) is not None for each in SPOKEN) > 150
    assert len(glossary()) > 60
    # A row of a table that the pattern above does not see would go unchecked.
    rows = re.findall(r"^\| [`*]\w", PAGE.partition("\n## Glossary\n")[2], re.M)
    spoken_of = re.findall(r"^\| \*[\w ]+\*", PAGE.partition("\n## Glossary\n")[2], re.M)
    assert len(rows) == len(glossary()) + len(spoken_of)


@pytest.mark.parametrize(
    "code",
    ["rollout/nothing.py", "rollout/retry.py:judges", "types.py:Episode.nothing", "Crew", "limits.nothing", "nothing/",
     "nothing/<n>/", "nothing.jsonl", "deskroll fly", "make fly", "--fly"],
)  # fmt: skip
def test_a_forged_name_is_found(code: str) -> None:
    assert problem(code)
