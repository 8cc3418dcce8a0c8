"""Notes of who owns which desktop: who is alive, who may take over, and what happens to what cannot be read."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from deskroll.clocks import boot_time
from deskroll.desktops.notes import TTL_S, Note, NoteFolder, renewed
from deskroll.host.owner import Owner, boot_id, host_id

GONE = Owner(host=host_id(), pid=2**22 + 1, start=1)
ELSEWHERE = Owner(host="another host", pid=1, start=1)


def note(desktop_id: str, owner: Owner, expires_in: float = TTL_S) -> Note:
    now = time.time()
    return Note(
        id=desktop_id, provider="local", owner=owner, created_at=now, expires_at=now + expires_in, width=1, height=1
    )


@pytest.fixture
def book(tmp_path: Path) -> NoteFolder[Note]:
    return NoteFolder(tmp_path, Note)


@pytest.mark.parametrize(
    ("owner", "expires_in", "orphaned"),
    [
        (Owner.this_process(), TTL_S, False),
        (Owner.this_process(), -1.0, False),
        (GONE, TTL_S, True),
        (msgspec.structs.replace(Owner.this_process(), start=1), TTL_S, True),
        (ELSEWHERE, TTL_S, False),
        (ELSEWHERE, -1.0, True),
    ],
    ids=["ours", "ours, late", "gone", "pid used again", "elsewhere", "elsewhere, expired"],
)
def test_who_is_an_orphan(book: NoteFolder[Note], owner: Owner, expires_in: float, orphaned: bool) -> None:
    book.open(note("one", owner, expires_in))
    (found,) = book.list()
    assert found.orphaned() is orphaned
    claimed = book.claim(found)
    mine = owner == Owner.this_process()
    assert (claimed is not None) == (orphaned or mine)
    current = book.read("one")
    assert current is not None
    assert (current.owner == Owner.this_process()) == (orphaned or mine), "only orphans change hands"


def test_what_cannot_be_read_hides_nothing_else(book: NoteFolder[Note], caplog: pytest.LogCaptureFixture) -> None:
    book.open(note("good", GONE))
    (book.open(note("bad", GONE)) / "note.json").write_bytes(b'{"id": "bad", "from": "another version"}')
    (book.root / "desktops" / "stray").write_text("no folder")
    (book.root / "desktops" / "empty").mkdir()
    assert [found.id for found in book.list("local")] == ["good"]
    assert book.list("sim") == []
    assert "remove that folder" in caplog.text


def test_what_was_never_started_is_tidied_up(book: NoteFolder[Note]) -> None:
    book.open(note("good", GONE))
    left = book.root / "desktops" / ".left"
    left.mkdir()
    book.tidy()
    assert not left.exists()
    assert [found.id for found in book.list()] == ["good"]


def test_tidying_up_takes_nothing_that_is_being_made(book: NoteFolder[Note]) -> None:
    (book.root / "desktops").mkdir()
    ended = threading.Event()

    def tidy() -> None:
        while not ended.is_set():
            book.tidy()

    with ThreadPoolExecutor() as threads:
        tidying = threads.submit(tidy)
        try:
            for n in range(100):
                book.open(note(str(n), GONE))
        finally:
            ended.set()
        tidying.result()
    assert len(book.list()) == 100


def test_a_step_of_the_clock_takes_nothing_from_an_owner_on_this_boot(book: NoteFolder[Note]) -> None:
    """One that cannot be seen, in another pid namespace: by the wall's clock its note has long run out."""
    hidden = Owner(host=f"{boot_id()}/pid:[1]", pid=1, start=1)
    jumped = msgspec.structs.replace(renewed(note("one", hidden)), expires_at=time.time() - 3600)
    assert not jumped.orphaned()
    late = msgspec.structs.replace(jumped, expires_at=time.time() + 3600, expires_boot=boot_time() - 1)
    assert late.orphaned()
    assert msgspec.structs.replace(jumped, owner=ELSEWHERE).orphaned(), "two hosts have no other clock in common"


def test_renewing_puts_off_the_end_of_what_is_ours_and_nothing_else(book: NoteFolder[Note]) -> None:
    for desktop_id, owner in (("ours", Owner.this_process()), ("theirs", ELSEWHERE)):
        book.open(note(desktop_id, owner, expires_in=1.0))
        book.renew(desktop_id)
    book.renew("vanished")
    ends = {found.id: found.expires_at for found in book.list()}
    assert ends["ours"] > time.time() + TTL_S / 2 > ends["theirs"]


def test_a_renewal_puts_back_nothing_that_is_being_removed(book: NoteFolder[Note]) -> None:
    over = threading.Event()

    def renew() -> None:
        while not over.is_set():
            book.renew("one")

    book.root.joinpath("notes.lock").touch()
    with ThreadPoolExecutor(2) as pool:
        renewals = [pool.submit(renew) for _ in range(2)]
        try:
            for _ in range(200):
                folder = book.open(note("one", Owner.this_process()))
                book.close("one")
                assert not folder.exists()
        finally:
            over.set()
        for each in renewals:
            each.result()
