"""Names of parts: the table, plug-ins, paths, and what is said when something is not there."""

# ruff: noqa: E501 - a table reads best with one example a line

import subprocess
import sys
import tomllib
from json import JSONDecoder
from pathlib import Path

import pytest

from deskroll.errors import InputError, MissingDependency
from deskroll.registry import TABLE, Entry, Registry

ROOT = Path(__file__).parent.parent


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that can be imported from, as an installed package can."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _install(folder: Path, distribution: str, entry_points: str) -> None:
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_a_short_name_is_imported_when_it_is_asked_for() -> None:
    registry = Registry({"decoder": [Entry("json", "json:JSONDecoder", summary="JSON")]})
    assert registry.load("decoder", "json") is JSONDecoder
    assert registry.find("decoder", "json").summary == "JSON"


def test_a_path_needs_no_entry() -> None:
    assert Registry({"decoder": []}).load("decoder", "json.decoder:JSONDecoder") is JSONDecoder
    assert Registry({"decoder": []}).load("decoder", "json:JSONDecoder.decode") is JSONDecoder.decode


def test_an_unknown_name_lists_those_there_are() -> None:
    registry = Registry({"provider": [Entry("local", "a:B"), Entry("docker", "a:C")]})
    with pytest.raises(InputError) as caught:
        registry.load("provider", "dokcer")
    assert str(caught.value) == (
        "there is no provider 'dokcer'; did you mean docker?; known: local, docker; "
        "a path package.module:Attribute and a file my_file.py:Attribute work, too"
    )
    with pytest.raises(InputError, match=r"^there is no agent 'x'; none is known"):
        Registry({"agent": []}).load("agent", "x")


def test_an_unknown_kind_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^no kind 'planet' in the registry; kinds: agent$"):
        Registry({"agent": []}).load("planet", "mars")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package_here.mod:Agent", "agent 'no_such_package_here.mod:Agent': there is no module 'no_such_package_here'"),
        ("json.nothing:Agent", "agent 'json.nothing:Agent': there is no module 'json.nothing'"),
        ("json:JSONDecodr", "agent 'json:JSONDecodr': json has no JSONDecodr; did you mean JSONDecoder?"),
        ("json:", "agent 'json:' is not a path; write package.module:Attribute"),
        (":x", "agent ':x' is not a path"),
        ("a-b:x", "agent 'a-b:x' is not a path"),
    ],
)  # fmt: skip
def test_a_wrong_path_says_what_is_not_there(path: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Registry({"agent": []}).load("agent", path)
    assert str(caught.value).startswith(message)


def test_a_missing_extra_is_one_sentence_with_the_line_to_run(modules: Path) -> None:
    (modules / "needs_extra.py").write_text("import no_such_library_at_all.part\nclass A: ...\n")
    registry = Registry({"provider": [Entry("moon", "needs_extra:A", extra="moon")]})
    with pytest.raises(MissingDependency) as caught:
        registry.load("provider", "moon")
    assert (
        str(caught.value) == "provider 'moon' needs the module 'no_such_library_at_all': pip install 'deskroll[moon]'"
    )


@pytest.mark.parametrize(
    ("name", "source", "error"),
    [
        ("bug_stdlib", "import json.nothing", ModuleNotFoundError),
        ("bug_own", "import deskroll.nothing", ModuleNotFoundError),
        ("bug_part", "import yaml.nothing", ModuleNotFoundError),
        ("bug_name", "from yaml import nothing_of_that_name", ImportError),
        ("bug_plain", "1 / 0", ZeroDivisionError),
    ],
)
def test_a_bug_in_the_part_surfaces_as_it_is(modules: Path, name: str, source: str, error: type[Exception]) -> None:
    (modules / f"{name}.py").write_text(source)
    registry = Registry({"provider": [Entry("moon", f"{name}:A", extra="moon")]})
    with pytest.raises(error) as caught:
        registry.load("provider", "moon")
    assert type(caught.value) is error


def test_without_an_extra_a_missing_module_surfaces_too(modules: Path) -> None:
    (modules / "broken_install.py").write_text("import no_such_library_at_all")
    with pytest.raises(ModuleNotFoundError):
        Registry({"provider": [Entry("moon", "broken_install:A")]}).load("provider", "moon")


def test_plug_ins_are_found_by_their_entry_point(modules: Path) -> None:
    (modules / "moon_plug_in.py").write_text("class Moon: ...\nclass Local: ...\n")
    _install(modules, "moonshot", "[deskroll.planet]\nmoon = moon_plug_in:Moon\nlocal = moon_plug_in:Local\n")
    registry = Registry({"planet": [Entry("local", "json:JSONDecoder")]})
    assert [(entry.name, entry.summary) for entry in registry.entries("planet")] == [
        ("local", ""), ("moon", "plug-in of moonshot"),
    ]  # fmt: skip
    moon = registry.load("planet", "moon")
    assert isinstance(moon, type)
    assert (moon.__module__, moon.__name__) == ("moon_plug_in", "Moon")
    assert registry.find("planet", "local").target == "json:JSONDecoder"


def test_two_plug_ins_of_one_name_are_refused(modules: Path) -> None:
    _install(modules, "one", "[deskroll.star]\nsun = one_sun:Sun\n")
    _install(modules, "two", "[deskroll.star]\nsun = two_sun:Sun\n")
    with pytest.raises(InputError) as caught:
        Registry({"star": []}).find("star", "sun")
    assert str(caught.value) == (
        "several plug-ins call a star 'sun': one_sun:Sun (plug-in of one), two_sun:Sun (plug-in of two); "
        "name one by its path"
    )


def test_the_table_names_extras_that_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {entry.extra for entries in TABLE.values() for entry in entries} <= {None, *extras}


@pytest.mark.parametrize(("kind", "name"), [(kind, entry.name) for kind, entries in TABLE.items() for entry in entries])
def test_everything_in_the_table_can_be_loaded(kind: str, name: str) -> None:
    assert Registry().load(kind, name)


def test_listing_the_table_imports_no_part() -> None:
    code = (
        "import sys; from deskroll.registry import Registry\n"
        "assert [entry.name for entry in Registry().entries('provider')][:1] == ['local']\n"
        "print(*[name for name in sys.modules if name.startswith(('deskroll.desktops', 'pydantic', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
