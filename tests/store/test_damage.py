"""Damage to a journal: whatever a bit does, no outcome changes in silence."""

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deskroll.errors import FailureClass, StoreError
from deskroll.store import AttemptWriter, Run, RunStore, journal
from deskroll.store.journal import DesktopChanged, Failed, GroupClosed, GroupOpened, Planned, Reopened, Sealed, Started
from deskroll.store.local import LocalStorage
from deskroll.types import Episode, EpisodeKey, Failure, Score, StopReason
from tests.store.records import episode, info, key, lost

TASKS = ("alpha", "beta", "gamma", "delta")


async def attempt(store: RunStore, of: Episode, *, final: bool = True) -> None:
    store.write(Started(key=of.key, attempt=of.attempt, epoch=store.epoch, at=1.5))
    async with AttemptWriter(store.storage, of.key, of.attempt) as writer:
        await writer.seal(of)
    store.write((Sealed if final else Failed)(episode=of, epoch=store.epoch))


def blamed(of: EpisodeKey, attempt: int) -> Episode:
    """What a coordinator makes of a second death."""
    failure = Failure(failure_class=FailureClass.AGENT, kind="desktop_lost", message="agent: desktop_lost")
    return episode(of, attempt, stop=StopReason.FAILURE, failure=failure, score=Score(value=0.0, reason="lost"))  # type: ignore[arg-type]


async def make_run(root: Path) -> None:
    """Two starts of a run, with every kind of record."""
    async with RunStore.create(root, info()) as store:
        store.write(*(Planned(phase="eval", round=0, task=task, samples=2, digest="d", of=4) for task in TASKS))
        store.write(DesktopChanged(desktop="d1", state="ready", at=2.0, seconds=0.5))
        store.write(GroupOpened(phase="eval", round=0, task="alpha", at=1.0))
        await attempt(store, episode(key("alpha", 0), answer="Jolly *good*"))
        await attempt(store, episode(key("alpha", 1), value=0.0))
        store.write(GroupClosed(phase="eval", round=0, task="alpha", at=2.0))
        await attempt(store, lost(key("beta", 0)), final=False)
        await attempt(store, lost(key("beta", 1)))
    async with RunStore.resume(root) as store:
        store.write(Reopened(key=key("beta", 1), epoch=2, at=3.0))
        await attempt(store, episode(key("beta", 1), 2))
        of = key("beta", 0)
        store.write(Started(key=of, attempt=2, epoch=2))
        async with AttemptWriter(store.storage, of, 2) as writer:
            await writer.seal(lost(of, 2))
        ended = blamed(of, 2)
        store.write(Sealed(episode=ended, epoch=2))
        await attempt(store, episode(key("gamma", 0), value=0.5))


def said(run: Run) -> object:
    """All that decides about a run, and all outcomes in full."""
    index = run.index
    attempts = {of: index.attempts(of) for of in index.entries}
    records = [list(run.records(kind)) for kind in (Failed, Sealed, Started, DesktopChanged)]
    return index.planned, index.unfinished(), index.outcomes(), index.epoch, index.closed, attempts, records


def decided(run: Run) -> object:
    return run.outcomes()


def own_account(run: Run) -> list[Episode]:
    """Outcomes that are what their attempts say; of the others nothing else says the words."""
    return [each for each in run.outcomes() if each.key != key("beta", 0)]


def without_checksums(data: bytes) -> bytes:
    return re.sub(rb',"crc":"[0-9a-f]{8}"}\n', b"}\n", data)


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    await make_run(tmp_path / "run")
    return tmp_path / "run"


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


async def test_a_bit_that_flips_anywhere_is_put_right_and_named(root: Path) -> None:
    file = root / "journal.jsonl"
    data, expected = file.read_bytes(), said(Run.open(root))
    dice = random.Random(7)
    places = [*range(len(data) - 40, len(data)), *(dice.randrange(len(data)) for _ in range(120))]
    places += [place for place, byte in enumerate(data) if byte in b"\nJ*"]  # lines are joined, or torn in two
    for place in places:
        file.write_bytes(flipped(data, place, dice.randrange(8)))
        run = Run.open(root)
        assert said(run) == expected, place
        number = data.count(b"\n", 0, place) + 1
        assert [f"journal.jsonl, line {number}: " in each for each in run.damage] == [True], (place, run.damage)
        assert run.verify() == list(run.damage)


async def test_in_the_older_form_no_bit_changes_an_outcome_in_silence(root: Path) -> None:
    file = root / "journal.jsonl"
    data = without_checksums(file.read_bytes())
    file.write_bytes(data)
    run = Run.open(root)
    expected, dice, repaired = own_account(run), random.Random(7), 0
    scores = [(each.key, each.score) for each in run.outcomes()]
    assert run.damage == ()
    sealed = [place for found in re.finditer(rb'{"type":"sealed".*\n', data) for place in range(*found.span())]
    for _ in range(250):
        file.write_bytes(flipped(data, dice.choice(sealed), dice.randrange(8)))
        try:
            run = Run.open(root)
        except StoreError as error:
            assert re.search(r"journal.jsonl, line \d+: ", str(error))
            continue
        repaired += len(run.damage)
        assert [(each.key, each.score) for each in run.outcomes()] == scores
        assert run.damage or own_account(run) == expected
    assert repaired > 100


async def test_the_flip_of_a_score_is_found_by_what_else_says_it(root: Path) -> None:
    """In the older form: where the journal and the attempt's folder differ, the results tell which one changed."""
    file, of = root / "journal.jsonl", key("alpha", 0)
    data = without_checksums(file.read_bytes())
    manifest = root / "episodes/eval/0/alpha/0/1/episode.json"
    wrong = data.replace(b'"value":1.0', b'"value":0.0', 1)
    file.write_bytes(wrong)
    run = Run.open(root)
    assert run.index.episode(of) == episode(of, answer="Jolly *good*")
    assert "was put right from episodes/eval/0/alpha/0/1/episode.json" in run.damage[0]
    file.write_bytes(data)
    manifest.write_text(manifest.read_text().replace('"value": 1.0', '"value": 0.0'))
    run = Run.open(root)
    assert run.index.episode(of) == episode(of, answer="Jolly *good*")
    assert "episode.json says something else; results.jsonl agrees with the journal" in run.damage[0]
    (root / "results.jsonl").unlink()
    with pytest.raises(StoreError, match=r"journal.jsonl, line \d+: cannot be read .*restore the file"):
        Run.open(root)


async def test_an_outcome_that_was_wiped_out_comes_back_from_its_folder(root: Path) -> None:
    file = root / "journal.jsonl"
    data, expected = file.read_bytes(), said(Run.open(root))
    line = next(each for each in data.splitlines(keepends=True) if b'"sealed"' in each and b'"gamma"' in each)
    for wiped in (b"\0" * (len(line) - 30) + line[-30:], line[:40] + b"\0" * (len(line) - 41) + b"\n", b"\n"):
        file.write_bytes(data.replace(line, wiped))
        run = Run.open(root)
        assert said(run) == expected
        assert "was put right from episodes/eval/0/gamma/0/1/episode.json" in run.damage[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:3], *lines[4:]],
        lambda lines: [*lines[:4], *lines[3:]],
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        lambda lines: [*lines[:3], lines[3][:20] + b"\n", *lines[4:]],
        lambda lines: [*lines[:3], b"{}\n", *lines[3:]],
    ],
    ids=["lost", "doubled", "swapped", "cut", "put between"],
)
async def test_a_line_that_was_changed_beyond_repair_is_an_error(
    root: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    file = root / "journal.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"journal.jsonl, line [45]: it is not what was written .*restore the file"
        ):
            Run.open(root)
    with pytest.raises(StoreError, match=r"it is not what was written"):
        async with RunStore.resume(root):
            raise AssertionError("it must not be opened")


async def test_a_resume_puts_the_file_right_and_keeps_what_it_found(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = root / "journal.jsonl"
    data, expected = file.read_bytes(), decided(Run.open(root))
    spoilt = flipped(data, data.index(b'"value":1.0') + 8, 0)
    file.write_bytes(spoilt)
    async with RunStore.resume(root) as store:
        assert store.index.outcomes() == expected
        store.write(Started(key=key("gamma", 1), attempt=1, epoch=3))
    assert file.read_bytes().startswith(data)
    assert (root / "journal.jsonl.damaged-1").read_bytes() == spoilt
    assert re.search(r"journal.jsonl, line \d+: a bit had flipped", caplog.text)
    run = Run.open(root)
    assert (run.damage, decided(run)) == ((), expected)


async def test_the_older_form_goes_on_with_checksums(root: Path) -> None:
    file = root / "journal.jsonl"
    expected = decided(Run.open(root))
    old = without_checksums(file.read_bytes())
    file.write_bytes(old)
    async with RunStore.resume(root) as store:
        store.write(Started(key=key("gamma", 1), attempt=1, epoch=3))
    data = file.read_bytes()
    assert data.startswith(old)
    dice = random.Random(7)
    for place in dice.sample(range(len(data)), 25):
        file.write_bytes(flipped(data, place, dice.randrange(8)))
        run = Run.open(root)
        assert decided(run) == expected
        assert len(run.damage) == 1


async def test_a_live_run_is_followed_past_a_bit_that_flips(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    async with RunStore.create(tmp_path, info()) as store:
        store.write(Planned(phase="eval", round=0, task="alpha", samples=2))
        await store.sync()
        run = Run.open(tmp_path)
        await attempt(store, episode(key("alpha", 0)))
        await store.sync()
        place = file.read_bytes().index(b'"value":1.0') + 8
        with file.open("r+b") as opened:
            opened.seek(place)
            opened.write(b"0")
        run.refresh()
        assert run.outcomes() == [episode(key("alpha", 0))]
        assert len(run.damage) == 1
        await attempt(store, episode(key("alpha", 1)))
        await store.sync()
        run.refresh()
        assert run.outcomes() == [episode(key("alpha", n)) for n in range(2)]


class Growing(LocalStorage):
    """A run's folder into which its coordinator writes between any two reads."""

    def __init__(self, folder: Path, coming: list[bytes]) -> None:
        super().__init__(folder)
        self.coming = coming
        self.starts: list[int] = []

    def read(self, path: str, start: int = 0) -> bytes:
        data = super().read(path, start)
        if path == "journal.jsonl":
            self.starts.append(start)
            if self.coming:
                with (self.folder / path).open("ab") as file:
                    file.write(self.coming.pop(0))
        return data


@pytest.mark.parametrize("damage", ["a bit", "a newline"])
async def test_a_damaged_run_that_goes_on_while_it_is_read_is_read_once(root: Path, damage: str) -> None:
    """All of it is taken from one look at the file, and the next one begins where that ended."""
    file = root / "journal.jsonl"
    expected, lines = said(Run.open(root)), file.read_bytes().splitlines(keepends=True)
    half = len(lines) // 2
    begun = b"".join(lines[:half])
    place, bit = (len(begun) // 2, 0) if damage == "a bit" else (len(begun) - 1, 1)
    file.write_bytes(flipped(begun, place, bit))
    storage = Growing(root, lines[half : half + 2])
    run = Run(storage, Run.open(root).info)
    run.refresh()
    assert len(run.damage) == 1
    assert storage.starts == [0, 0], "what it reads first tells of the damage, and then all of it is read"
    storage.coming = lines[half + 2 :]
    while storage.coming or storage.starts[-1] < file.stat().st_size:
        run.refresh()
    assert said(run) == expected
    assert storage.starts.count(0) == 2, "and never again"
    assert storage.starts == sorted(storage.starts)


async def test_what_is_known_of_a_run_stays_where_its_journal_cannot_be_read_any_more(root: Path) -> None:
    file = root / "journal.jsonl"
    run = Run.open(root)
    before = said(run)
    file.write_bytes(file.read_bytes() + b'{"type":"nonsense"}\n')
    with pytest.raises(StoreError, match="it is not what was written"):
        run.refresh()
    assert said(run) == before


async def test_a_manifest_that_changed_is_named_by_its_line(root: Path) -> None:
    manifest = root / "episodes/eval/0/alpha/0/1/episode.json"
    manifest.write_text(manifest.read_text().replace('"value": 1.0', '"value": 0.0'))
    run = Run.open(root)
    found = list(run.disagreements())
    assert run.outcomes()[0].score.value == 1.0
    assert len(found) == 1
    line = next(
        n for n, each in enumerate((root / "journal.jsonl").read_bytes().splitlines(), 1) if b'"sealed"' in each
    )
    assert f"journal.jsonl, line {line}: episodes/eval/0/alpha/0/1/episode.json says something else" in found[0]
    assert run.verify() == found


async def test_folders_that_were_cleared_away_do_not_keep_an_older_run_from_being_read(root: Path) -> None:
    file = root / "journal.jsonl"
    expected = decided(Run.open(root))
    file.write_bytes(without_checksums(file.read_bytes()))
    shutil.rmtree(root / "episodes")
    run = Run.open(root)
    assert (decided(run), run.damage) == (expected, ())


def test_the_checksum_is_the_crc_of_all_that_stands_before_it() -> None:
    """So that other tools can check it."""
    from binascii import crc32  # noqa: PLC0415

    from deskroll.store.chain import Chain  # noqa: PLC0415

    chain = Chain(b"")
    data = b"".join(chain.link(journal.encode(Started(key=key(), attempt=n, epoch=1))) for n in range(1, 4))
    for found in re.finditer(rb',"crc":"([0-9a-f]{8})"}\n', data):
        assert int(found[1], 16) == crc32(data[: found.start()])
