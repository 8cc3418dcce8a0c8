"""OSWorld's suites, folders and task files: all of upstream's own, and every way in which one can be wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.tasks import Selection, load_tasks, tasks_folder
from deskroll.tasks.suites import suite_folder
from tests.tasks.shared import OSWORLD, needs_osworld

TASKS = {"chrome": ["a1", "a2"], "os": ["b1"]}
APPS = {"a1": ["Chrome"], "a2": ["browser", "libreoffice calc"], "b1": ["os"]}


def task(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "instruction": f"do {name}", "related_apps": APPS.get(name, []), "snapshot": "chrome", **more}


def lay_out(root: Path, named: Mapping[str, list[str]] = TASKS, folder: str = "examples") -> Path:
    """A suite as OSWorld keeps it; returns the suite file."""
    for domain, ids in named.items():
        (root / folder / domain).mkdir(parents=True, exist_ok=True)
        for each in ids:
            (root / folder / domain / f"{each}.json").write_text(json.dumps(task(each)))
    (root / "test_all.json").write_text(json.dumps(named))
    return root / "test_all.json"


def read(path: Path, root: Path | None = None) -> list[tuple[str, str]]:
    return [(each.domain, each.id) for each in load_tasks(path, root=root)]


BOTH = [("chrome", "a1"), ("chrome", "a2"), ("os", "b1")]


def test_a_suite_file_with_the_tasks_beside_it(tmp_path: Path) -> None:
    assert read(lay_out(tmp_path)) == BOTH


@pytest.mark.parametrize(("folder", "root"), [("examples", "."), ("examples", "examples"), ("elsewhere", "elsewhere")])
def test_a_suite_file_with_the_tasks_elsewhere(tmp_path: Path, folder: str, root: str) -> None:
    suite = lay_out(tmp_path / "there", folder=folder)
    assert read(suite.rename(tmp_path / "mine.json"), tmp_path / "there" / root) == BOTH


def test_a_suite_keeps_its_order(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "mine.json").write_text('{"os": ["b1"], "chrome": ["a2", "a1"]}')
    assert read(tmp_path / "mine.json") == BOTH[::-1]


def test_a_folder_is_read_to_its_depths(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "examples" / ".git").mkdir()
    (tmp_path / "examples" / ".git" / "x.json").write_text("{")
    (tmp_path / "examples" / "os" / "README.md").write_text("not a task")
    assert read(tmp_path / "examples") == BOTH
    assert read(tmp_path / "examples" / "chrome") == BOTH[:2]


def test_a_folder_with_a_suite_is_read_through_it(tmp_path: Path) -> None:
    lay_out(tmp_path).rename(tmp_path / "suite.json")
    (tmp_path / "inputs.json").write_text("[1, 2]")
    assert read(tmp_path) == BOTH


def test_a_single_task_file_has_its_folder_for_a_domain(tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert read(tmp_path / "examples" / "os" / "b1.json") == [("os", "b1")]
    (tmp_path / "mine.json").write_text(json.dumps(task("b1")))
    assert read(tmp_path / "mine.json") == [("", "b1")], "it is not named after its task"


def test_what_a_task_says_of_its_domain_goes_before(tmp_path: Path) -> None:
    suite = lay_out(tmp_path)
    (tmp_path / "examples" / "os" / "b1.json").write_text(json.dumps(task("b1", domain="shell")))
    assert read(suite)[-1] == read(tmp_path / "examples")[-1] == ("shell", "b1")


def test_what_upstream_does_not_use_is_kept_and_changes_no_desktop(tmp_path: Path) -> None:
    found = load_tasks(lay_out(tmp_path))[0]
    assert found.metadata == {"related_apps": ["Chrome"], "snapshot": "chrome"}


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        ({"os": ["b1", "b9"]}, r"test_all\.json: os\[1\]: there is no file .*examples/os/b9\.json; .*tasks_root"),
        ({"gimp": ["a1"]}, r"gimp\[0\]: there is no file .*examples/gimp/a1\.json"),
        ({"os": [7]}, r"test_all\.json: os\[0\] is a number; it must be the id of a task"),
        ({"os": ["../os/b1"]}, r"os\[0\] is '\.\./os/b1'; a domain and an id name a file"),
        ({"..": ["b1"]}, r"a domain and an id name a file"),
        ({"os": [""]}, r"os\[0\] is a text; it must be the id"),
        ({"os": ["x" * 300]}, r"there is no file"),
        ({"os": ["b1", "b1"]}, r"os/b1\.json: id 'b1' is there already"),
        ({"os": []}, r"test_all\.json: there is no task in it"),
        ({"os": ["c1"]}, r"os/c1\.json: id is 'other', and the suite .*test_all\.json calls it 'c1'"),
        ({"os": ["c2"]}, r"os/c2\.json:2: it is not valid JSON"),
        ({"os": ["c3"]}, r"os/c3\.json: task 'c3': instruction is a list; it must be a text"),
        ({"os": ["c4"]}, r"os/c4\.json: task 'c4': config must be a list of set-up steps"),
        ({"os": ["c5"]}, r"os/c5\.json: a task is an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_suite_is_named(tmp_path: Path, suite: dict[str, object], said: str) -> None:
    path = lay_out(tmp_path)
    wrong = {
        "c1": json.dumps(task("other")),
        "c2": '{\n"id" 1}',
        "c3": json.dumps({**task("c3"), "instruction": []}),
        "c4": json.dumps(task("c4", config={})),
        "c5": "[]",
    }
    for name, text in wrong.items():
        (tmp_path / "examples" / "os" / f"{name}.json").write_text(text)
    path.write_text(json.dumps(suite))
    with pytest.raises(InputError, match=said):
        load_tasks(path)


def test_a_suite_without_its_tasks_says_where_they_should_be(tmp_path: Path) -> None:
    path = lay_out(tmp_path, folder="elsewhere")
    with pytest.raises(InputError, match=r"this is a suite file .* no folder examples beside it .*\(tasks_root\)"):
        load_tasks(path)
    with pytest.raises(InputError, match=r"tasks_root: .*nowhere is not a folder"):
        load_tasks(path, root=tmp_path / "nowhere")


def test_a_root_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "t.jsonl").write_text(json.dumps(task("a1")))
    for path in (tmp_path / "t.jsonl", tmp_path / "examples", tmp_path / "examples" / "os" / "b1.json"):
        with pytest.raises(InputError, match="is not a suite file: it holds its tasks; leave tasks_root out"):
            load_tasks(path, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("notes.json", "[1]", r"notes\.json: it holds a list; in a folder of tasks each file is one task"),
        ("test_all.json", '{"os": ["b1"]}', r"test_all\.json: this is a suite file, in a folder that is read as tasks"),
        ("os/b2.json", json.dumps(task("b1")), r"os/b2\.json: id 'b1' is there already, at .*os/b1\.json"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    lay_out(tmp_path)
    (tmp_path / "examples" / name).write_text(text)
    with pytest.raises(InputError, match=said):
        load_tasks(tmp_path / "examples")


def test_a_folder_without_tasks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder without any task file"):
        load_tasks(tmp_path)


def test_a_suite_that_is_not_there_says_what_there_is() -> None:
    with pytest.raises(InputError, match=r"suite:nope: there is no suite 'nope'; .*a suite file or a folder works too"):
        load_tasks(Path("suite:nope"))


def test_a_suite_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    (tmp_path / "suite_of_mine.py").write_text(f"FOLDER = {str(tmp_path / 'examples')!r}\nNONE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "suite:suite_of_mine:FOLDER"
    assert read(Path(name)) == BOTH
    assert suite_folder(name) == tasks_folder(name) == tasks_folder(tmp_path / "examples")
    assert tasks_folder(tmp_path / "test_all.json") == tmp_path
    with pytest.raises(InputError, match="3 is not a folder"):
        load_tasks(Path("suite:suite_of_mine:NONE"))


# --- which of them ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (Selection(), ["a1", "a2", "b1"]),
        (Selection(domains=("os",)), ["b1"]),
        (Selection(domains=("os", "chrome")), ["a1", "a2", "b1"]),
        (Selection(ids=("b", "a2")), ["a2", "b1"]),
        (Selection(apps=("chrome",)), ["a1", "a2"]),
        (Selection(apps=("Calc",)), ["a2"]),
        (Selection(apps=("libreoffice_calc", "os")), ["a2", "b1"]),
        (Selection(domains=("chrome",), apps=("libreoffice calc",), ids=("a2",)), ["a2"]),
    ],
)
def test_the_tasks_that_fit_all_conditions(tmp_path: Path, only: Selection, found: list[str]) -> None:
    path = lay_out(tmp_path)
    assert [each.id for each in load_tasks(path, only=only)] == found
    assert [each.id for each in load_tasks(path, only=only, limit=1)] == found[:1]


@pytest.mark.parametrize(
    ("only", "said"),
    [
        (Selection(domains=("chrom",)), r"no domain 'chrom'; did you mean chrome\?; there are: chrome \(2\), os \(1\)"),
        (Selection(domains=("os", "x")), r"there is no domain 'x'"),
        (Selection(apps=("gimp",)), r"no app 'gimp'; there are: chrome \(2\), libreoffice_calc \(1\), os \(1\)"),
        (Selection(ids=("b7",)), r"there is no task 'b7'; there are: a1, a2, b1"),
        (Selection(ids=("a",)), r"2 tasks' ids begin with 'a': a1, a2; write more of it"),
        (Selection(ids=("",)), r"there is no task ''"),
        (Selection(domains=("os",), apps=("chrome",)), r"none of its 3 tasks fits all .*\(domain os; app chrome\)"),
    ],
)
def test_a_selection_that_fits_nothing_says_what_there_is(tmp_path: Path, only: Selection, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_tasks(lay_out(tmp_path), only=only)


# --- upstream's own --------------------------------------------------------------------------------------


@needs_osworld
def test_all_of_upstreams_tasks_load() -> None:
    stats = json.loads((OSWORLD / "task_stats.json").read_text())
    linux = load_tasks(OSWORLD / "test_all.json")
    windows = load_tasks(OSWORLD / "examples_windows")
    assert (len(linux), len(windows)) == (369, 49)
    for tasks, key in ((linux, "linux_examples"), (windows, "windows_examples")):
        assert Counter(each.domain for each in tasks) == stats[key]["by_domain"]
        assert all(each.instruction and each.evaluator.get("func") for each in tasks)
    by_id = {each.id: each for each in linux}
    assert {each.id: each for each in load_tasks(OSWORLD / "examples")} == by_id


@needs_osworld
def test_the_odd_ones_are_kept_as_they_are() -> None:
    tasks = load_tasks(OSWORLD / "test_all.json")
    files = {
        each.id: json.loads((OSWORLD / "examples" / each.domain / f"{each.id}.json").read_text()) for each in tasks
    }
    assert sum("config" not in raw for raw in files.values()) == 1
    assert sum(isinstance(each.metadata["source"], list) for each in tasks) == 1
    for each in tasks:
        raw = files[each.id]
        assert each.setup == tuple(raw.pop("config", ()))
        assert (each.instruction, each.evaluator) == (raw.pop("instruction"), raw.pop("evaluator"))
        assert {"id": each.id, **each.metadata} == raw


@needs_osworld
@pytest.mark.parametrize(("name", "count"), [("test_small", 39), ("test_nogdrive", 361), ("test_infeasible", 28)])
def test_upstreams_other_suites(name: str, count: int) -> None:
    assert len(load_tasks(OSWORLD / f"{name}.json")) == count
