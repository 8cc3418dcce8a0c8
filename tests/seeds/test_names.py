"""docs/documents.md maps every name in the users' documents, and whatever it says is here is here."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from deskroll.cli.main import cli
from tests.seeds import documents
from tests.seeds.conftest import ROOT
from tests.seeds.names import NAMES, NO_NAMES

PAGE = (ROOT / "docs" / "documents.md").read_text()
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.S)
at_hand = pytest.mark.skipif(not documents.SHARED.exists(), reason="the documents are not at hand")


def table_rows(text: str = PAGE) -> Iterator[tuple[str, str]]:
    """Of each row of the page's tables: the name's cell, and the rest."""
    for line in text.splitlines():
        if line.startswith("|"):
            _, name, *rest = line.split("|")
            yield name, "|".join(rest)


def said_of_this_project() -> list[str]:
    """Every piece of code on the page, but for the documents' names themselves."""
    rows = [rest for _, rest in table_rows()]
    prose = [line for line in FENCE.sub("", PAGE).splitlines() if not line.startswith("|")]
    return CODE.findall("\n".join(rows + prose))


@pytest.mark.parametrize("document", NAMES)
def test_every_name_is_mapped(document: str) -> None:
    _, _, by_document = PAGE.partition("\n## 1. ")
    mapped = {name for cell, _ in table_rows(by_document) for name in CODE.findall(cell)}
    assert not [name for name in NAMES[document] if name not in mapped], "these stand in no table's first column"


def test_every_row_says_where_it_is() -> None:
    assert not [cell for cell, rest in table_rows() if not rest.partition("|")[0].strip()]


# --- the list is complete --------------------------------------------------------------------------------------------


@at_hand
@pytest.mark.parametrize("document", NAMES)
def test_the_list_holds_what_the_document_marks_as_a_name(document: str) -> None:
    missing = marked_names(text_of(document)) - {*NAMES[document], *NO_NAMES}
    assert not missing, "put them into names.py: into NAMES, or into NO_NAMES with what they are"


@at_hand
@pytest.mark.parametrize("document", NAMES)
def test_the_list_holds_every_word_that_is_spelled_like_a_name(document: str) -> None:
    spelled = re.findall(r"\b(?:[a-z0-9]+(?:_[a-z0-9]+)+|[A-Z]+[a-z]+(?:[A-Z]+[a-z]*)+)\b", text_of(document))
    listed = {word for name in (*NAMES[document], *NO_NAMES) for word in re.findall(r"\w+", name)}
    known = {*listed, *(word.strip("_") for word in listed), "OpenAI", "VMware", "VirtualBox", "OSWorld"}
    assert not {word for word in spelled if word not in known}


@at_hand
@pytest.mark.parametrize("document", NAMES)
def test_the_list_holds_nothing_else(document: str) -> None:
    text = text_of(document)
    assert not [name for name in NAMES[document] if name not in text]


def text_of(document: str) -> str:
    return next(documents.SHARED.glob(f"{document}_*")).read_text()


def marked_names(text: str) -> set[str]:
    """What a document marks as a name: by its type, by its place, by its form."""
    prose = FENCE.sub("", text)
    names = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
    names |= set(re.findall(r"\*\*([^*\n]+)\*\*", prose))
    names |= set(re.findall(r"\[([^\]\n]+\.md)\]", prose))
    names |= {line.split("|")[1].strip(" `") for line in prose.splitlines() if re.match(r"\|\s*[^\s|-]", line)}
    for code in CODE.findall(prose):
        names |= set(parts_of(code))
    for language, block in FENCE.findall(text):
        names |= set(BLOCKS.get(language, no_names)(block))
    # Names that are joined by slashes, and numbers, are no names.
    return {each for name in names for each in (name.split("/") if name in SEVERAL else [name]) if not each.isdigit()}


SEVERAL = {"aws/gcp/azure/aliyun/volcengine"}


def parts_of(code: str) -> Iterator[str]:
    """`--flag value` are two, `name="value"` are two, `"value"` is one."""
    if code.startswith("--"):
        yield from code.split()
    elif match := re.fullmatch(r'(\w+)="(\w+)"', code):
        yield from match.groups()
    else:
        yield code.strip('"')


def names_in_python(block: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(block)):
        match node:
            case ast.Call(func=function, keywords=keywords):
                yield ast.unparse(function)
                yield from (each.arg for each in keywords if each.arg)
            case ast.Dict(keys=keys):
                yield from (
                    each.value for each in keys if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )
            case ast.ImportFrom(module=module, names=names):
                yield from (module or "", *(each.name for each in names))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def names_in_shell(block: str) -> Iterator[str]:
    words = shlex.split(block.replace("\\\n", " "), comments=True)
    yield from (word for word in words if re.search(r"\.(py|sh|jsonl)$", word))


def names_in_mermaid(block: str) -> Iterator[str]:
    for name in re.findall(r"participant\s+\w+\s+as\s+(.+)", block) + re.findall(r'\w\["?([^\]"]+)"?\]', block):
        yield re.sub(r"\(s\)$| #\w$", "", name.strip())
    yield from re.findall(r"([\w.]+)\((?!s\))", re.sub(r"%%.*|participant.*", "", block))
    yield from re.findall(r"POST /\w+", block)


def names_in_a_tree(block: str) -> Iterator[str]:
    yield from re.findall(r"── (\S+)", block)


def names_in_a_log(block: str) -> Iterator[str]:
    yield from (line for line in block.splitlines() if line.startswith("["))


def no_names(block: str) -> Iterator[str]:
    yield from ()


BLOCKS = {
    "python": names_in_python,
    "bash": names_in_shell,
    "mermaid": names_in_mermaid,
    "text": names_in_a_tree,
    "": names_in_a_log,
}


# --- what it says is here is here ------------------------------------------------------------------------------------

PATH = re.compile(r"(?P<file>[\w.-]+(?:/[\w.-]+)*\.py|[\w.-]+(?:/[\w.-]+)+\.(?:md|jsonl|yaml))(?::(?P<name>\w+))?")
"""A file of this project, from its root or from src/deskroll/; after a colon, something that is defined in it."""


@pytest.mark.parametrize("code", sorted({each for each in said_of_this_project() if PATH.fullmatch(each)}))
def test_a_file_is_there_and_defines_what_is_said(code: str) -> None:
    match = PATH.fullmatch(code)
    assert match is not None
    found = [place / match["file"] for place in (ROOT, ROOT / "src" / "deskroll") if (place / match["file"]).is_file()]
    assert found, "there is no such file"
    if match["name"]:
        assert re.search(rf"^\s*(?:(?:async )?def |class )?{match['name']}\b\s*[(:=]", found[0].read_text(), re.M)


@pytest.mark.parametrize("code", sorted({each for each in said_of_this_project() if each.startswith("deskroll ")}))
def test_a_command_is_there_with_its_options(code: str) -> None:
    command: click.Command = cli
    words = shlex.split(code)[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, "there is no such command"
        command = found
    options = {name for each in command.params for name in each.opts}
    assert not [word for word in words if word.startswith("--") and word not in options]


def test_both_are_looked_for() -> None:
    said = said_of_this_project()
    assert sum(PATH.fullmatch(each) is not None for each in said) > 30
    assert sum(each.startswith("deskroll ") for each in said) > 8
