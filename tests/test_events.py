"""The kinds of events: each has a name of its own, a line that says what it is, and its row in the documents."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from deskroll.events import Event, JobEnded, guarded, kind_of

PAGE = Path(__file__).parent.parent / "docs" / "events.md"
KINDS = get_args(Event)


def rows() -> list[str]:
    """The table of docs/events.md, as the union has it."""
    return [f"| `{kind_of(kind)}` | {(kind.__doc__ or '').split(chr(10))[0]} | {_fields(kind)} |" for kind in KINDS]


def _fields(kind: type) -> str:
    return ", ".join(f"`{each.name}`" for each in msgspec.structs.fields(kind) if each.name != "at")


def test_the_page_has_every_kind_as_it_is() -> None:
    table = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert table == rows(), "\n".join(rows())


def test_names_are_distinct_and_dotted() -> None:
    names = [kind_of(kind) for kind in KINDS]
    assert len(set(names)) == len(names)
    assert all(name.count(".") == 1 for name in names)


@pytest.mark.parametrize("kind", KINDS, ids=kind_of)
def test_every_kind_is_plain_data(kind: type[Event]) -> None:
    """What is read back is what was written, as JSON and as MessagePack."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    given = {name: _some(each.type) for name, each in fields.items() if each.required}
    event = msgspec.convert(given | {"kind": kind_of(kind)}, kind)
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event


def _some(wanted: object) -> object:
    """A value that fits, as JSON has it."""
    key = {"phase": "p", "round": 0, "task": "t", "sample": 0}
    plain = {str: "text", int: 3, float: 1.5, bool: True}
    if wanted in plain:
        return plain[wanted]
    return key if getattr(wanted, "__name__", "") == "EpisodeKey" else next(iter(wanted)).value  # type: ignore[call-overload]


def test_whoever_reports_does_not_fail_by_whoever_listens(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, event: Event) -> None:
            raise RuntimeError("boom")

    guarded(Broken()).emit(JobEnded(phase="p", round=0))
    guarded(None).emit(JobEnded(phase="p", round=0))
    assert "job.ended could not be reported" in caplog.text
