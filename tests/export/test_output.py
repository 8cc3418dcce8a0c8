"""The folder that an export is written to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deskroll.errors import InputError, StoreError
from deskroll.export.output import Mark, Output

MARK = Mark(run_id="run", to="osworld")


def put(output: Output, place: str, attempt: str = "a", text: str = "x") -> None:
    def fill(folder: Path) -> bool:
        (folder / "file").write_text(text)
        return True

    output.put(place, attempt, fill)


def names(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


def broken_off(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Output.open(path, MARK) as output:
        put(output, "tree/one")

        def fill(folder: Path) -> bool:
            (folder / "half").write_text("")
            raise KeyboardInterrupt

        output.put("tree/two", "a", fill)


def test_what_was_removed_in_between_is_made_again(tmp_path: Path) -> None:
    broken_off(tmp_path)
    shutil.rmtree(tmp_path / "tree")
    with Output.open(tmp_path, MARK) as output:
        assert not output.has("tree/one", "a")
        put(output, "tree/one")
        assert output.has("tree/one", "a")
    assert names(tmp_path) == ["export.json", "tree/one/file"]


def test_what_was_broken_off_can_be_told_and_goes_on(tmp_path: Path) -> None:
    broken_off(tmp_path)
    assert '"finished"' not in (tmp_path / "export.json").read_text()
    assert not (tmp_path / "tree" / "two").exists()
    with Output.open(tmp_path, MARK) as output:
        assert output.has("tree/one", "a")
        assert not output.has("tree/one", "another attempt")
        assert not output.has("tree/two", "a")
        put(output, "tree/two")
    assert names(tmp_path) == ["export.json", "tree/one/file", "tree/two/file"]
    assert '"finished": true' in (tmp_path / "export.json").read_text()


def test_a_torn_line_of_what_is_done_is_done_again(tmp_path: Path) -> None:
    broken_off(tmp_path)
    done = tmp_path / ".part" / "done.jsonl"
    done.write_bytes(done.read_bytes()[:-5])
    with Output.open(tmp_path, MARK) as output:
        assert not output.has("tree/one", "a")
        put(output, "tree/one", text="anew")
    assert (tmp_path / "tree" / "one" / "file").read_text() == "anew"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (MARK, "a finished export of run run"),
        (Mark(run_id="b", to="osworld"), "export of run run"),
        (Mark(run_id="run", to="video", options={"fps": "2"}), r"\(--to osworld\)"),
    ],
)
def test_a_finished_or_other_export_is_replaced_by_force_only(tmp_path: Path, other: Mark, said: str) -> None:
    with Output.open(tmp_path, MARK) as output:
        put(output, "tree/one")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=said), Output.open(tmp_path, other):
        pass
    with Output.open(tmp_path, other, force=True) as output:
        put(output, "other/two")
    assert names(tmp_path) == ["export.json", "notes.txt", "other/two/file"]


def test_force_leaves_alone_what_was_there_before(tmp_path: Path) -> None:
    (tmp_path / "tree" / "one").mkdir(parents=True)
    (tmp_path / "tree" / "theirs").write_text("")
    (tmp_path / "tree" / "one" / "old").write_text("")
    with pytest.raises(InputError, match=r"is not empty \(it holds tree\)"), Output.open(tmp_path, MARK):
        pass
    for _ in range(2):
        with Output.open(tmp_path, MARK, force=True) as output:
            put(output, "tree/one")
        assert names(tmp_path) == ["export.json", "tree/one/file", "tree/theirs"]


@pytest.mark.parametrize("exported", [False, True])
def test_force_refuses_a_part_that_no_export_left(tmp_path: Path, exported: bool) -> None:
    if exported:
        with Output.open(tmp_path, MARK) as output:
            put(output, "tree/one")
    (tmp_path / ".part").mkdir()
    (tmp_path / ".part" / "precious").write_text("mine")
    before = names(tmp_path)
    with pytest.raises(InputError, match=r"\.part is not of an export"), Output.open(tmp_path, MARK, force=True):
        pass
    assert names(tmp_path) == before


def test_force_replaces_what_was_broken_off(tmp_path: Path) -> None:
    broken_off(tmp_path)
    with Output.open(tmp_path, MARK, force=True) as output:
        put(output, "tree/two")
    assert names(tmp_path) == ["export.json", "tree/two/file"]


@pytest.mark.parametrize("force", [False, True])
def test_one_export_at_a_time_writes_a_folder(tmp_path: Path, force: bool) -> None:
    with Output.open(tmp_path, MARK) as output:
        put(output, "tree/one")
        with (
            pytest.raises(InputError, match="is being written by another export"),
            Output.open(tmp_path, MARK, force=force),
        ):
            pass
        put(output, "tree/two")
    assert names(tmp_path) == ["export.json", "tree/one/file", "tree/two/file"]
    with Output.open(tmp_path, MARK, force=True):
        pass


def test_a_forged_mark_removes_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "export.json").write_text('{"run_id": "run", "to": "osworld", "entries": ["../precious"]}')
    with Output.open(folder, MARK, force=True):
        pass
    assert (tmp_path / "precious").is_dir()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "out"
    with pytest.raises(StoreError, match="file/out: Not a directory; once"), Output.open(folder, MARK):
        pass
