"""The fold over the journal: whatever is written, exactly one outcome for each episode."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.errors import StoreError
from deskroll.store import CloseReason, Index, journal
from deskroll.store.journal import (
    Closed,
    DesktopChanged,
    Failed,
    GroupClosed,
    GroupOpened,
    JournalRecord,
    Opened,
    Planned,
    Reopened,
    Sealed,
    Started,
)
from deskroll.types import EpisodeKey
from tests.store.records import episode, key, lost

KEYS = [key(task, sample) for task in "ab" for sample in range(2)]
_keys = st.sampled_from(KEYS)
_epochs = st.integers(1, 4)
_attempts = st.integers(1, 5)
RECORDS: st.SearchStrategy[JournalRecord] = st.one_of(
    st.builds(Opened, epoch=_epochs, at=st.just(1.0)),
    st.builds(Planned, phase=st.just("eval"), round=st.just(0), task=st.sampled_from("abc"), samples=st.integers(0, 2),
              revised=st.booleans()),
    st.builds(Started, key=_keys, attempt=_attempts, epoch=_epochs),
    st.builds(lambda of, n, epoch: Sealed(episode=episode(of, n), epoch=epoch), _keys, _attempts, _epochs),
    st.builds(lambda of, n, epoch: Failed(episode=lost(of, n), epoch=epoch), _keys, _attempts, _epochs),
    st.builds(Reopened, key=_keys, epoch=_epochs, at=st.just(1.0)),
    st.builds(Closed, epoch=_epochs, at=st.just(2.0), why=st.sampled_from(CloseReason)),
    st.builds(DesktopChanged, desktop=st.just("d"), state=st.just("ready"), at=st.just(1.0)),
    st.builds(GroupOpened, phase=st.just("eval"), round=st.just(0), task=st.just("a"), at=st.just(1.0)),
    st.builds(GroupClosed, phase=st.just("eval"), round=st.just(0), task=st.just("a"), at=st.just(1.0)),
)  # fmt: skip


def seen(index: Index) -> object:
    """All that an index says."""
    return (
        index.epoch,
        index.closed,
        index.planned,
        index.stale,
        index.done,
        {of: (entry.attempts, index.episode(of)) for of, entry in index.entries.items()},
    )


def accepted(records: list[JournalRecord]) -> tuple[Index, list[JournalRecord]]:
    """An index after those records that it took."""
    index, taken = Index(), []
    for record in records:
        before = seen(index)
        try:
            index.apply(record)
        except StoreError:
            assert seen(index) == before
        else:
            taken.append(record)
    return index, taken


@given(st.lists(RECORDS, max_size=60))
def test_any_history_leaves_at_most_one_outcome_each(records: list[JournalRecord]) -> None:
    index, taken = accepted(records)
    outcomes: dict[EpisodeKey, object] = {}
    revised: dict[str, int] = {}
    planned: set[str] = set()
    epoch = 0
    for record in taken:
        if isinstance(record, Planned):
            if record.task in planned:
                revised[record.task] = record.samples
            planned.add(record.task)
        if isinstance(record, Opened):
            epoch = max(epoch, record.epoch)
        elif getattr(record, "epoch", epoch) < epoch:
            continue
        elif isinstance(record, Sealed):
            assert record.episode.key not in outcomes
            outcomes[record.episode.key] = record.episode
        elif isinstance(record, Reopened):
            del outcomes[record.key]
    assert set(index.unfinished()) == set(index.keys()) - set(outcomes)
    outcomes = {of: each for of, each in outcomes.items() if of.sample < revised.get(of.task, 2)}
    assert {each.key: each for each in index.outcomes()} == outcomes
    assert index.done == len(outcomes)
    assert index.epoch == epoch


@given(st.lists(RECORDS, max_size=60), st.binary(max_size=20).filter(lambda torn: b"\n" not in torn))
def test_reading_the_lines_gives_the_same_as_writing_them(records: list[JournalRecord], torn: bytes) -> None:
    index, taken = accepted(records)
    data = b"".join(map(journal.encode, taken))
    assert seen(Index.load(data + torn, "journal.jsonl")) == seen(index)
    half = Index.load(data[: journal.whole(data[: len(data) // 2])], "journal.jsonl")
    half.extend(data[journal.whole(data[: len(data) // 2]) :], "journal.jsonl")
    assert seen(half) == seen(index)


@given(RECORDS)
def test_a_record_comes_back_equal(record: JournalRecord) -> None:
    assert journal.decode(journal.encode(record)) == record


def test_a_second_outcome_is_refused_unless_the_first_was_taken_back() -> None:
    index = Index()
    index.apply(Sealed(episode=lost(key(), 1), epoch=1))
    with pytest.raises(StoreError, match=r"eval/0/task/0 has an outcome already \(attempt 1\)"):
        index.apply(Sealed(episode=episode(key(), 2), epoch=1))
    index.apply(Reopened(key=key(), epoch=1, at=1.0))
    index.apply(Sealed(episode=episode(key(), 2), epoch=1))
    assert index.episode(key()) == episode(key(), 2)
    with pytest.raises(StoreError, match="no outcome that could be taken back"):
        index.apply(Reopened(key=key("other"), epoch=1, at=1.0))


def test_the_number_of_an_attempt_is_never_given_again() -> None:
    index = Index()
    index.apply(Started(key=key(), attempt=2, epoch=1))
    with pytest.raises(StoreError, match="attempt 2 was given before"):
        index.apply(Started(key=key(), attempt=2, epoch=1))
    assert index.attempts(key()) == 2
    assert index.attempts(key("other")) == 0


def test_a_superseded_coordinator_does_not_count() -> None:
    index = Index()
    for epoch in (1, 2):
        index.apply(Opened(epoch=epoch, at=1.0))
    index.apply(Sealed(episode=episode(key()), epoch=1))
    index.apply(Closed(epoch=1, at=1.0, why=CloseReason.FINISHED))
    assert (index.done, index.stale, index.closed) == (0, 2, None)


def test_a_task_is_planned_once() -> None:
    index = Index()
    index.apply(Planned(phase="eval", round=0, task="t", samples=2))
    with pytest.raises(StoreError, match="'t' is planned twice for phase 'eval', round 0"):
        index.apply(Planned(phase="eval", round=0, task="t", samples=2))
    with pytest.raises(StoreError, match="0 samples are not a plan"):
        index.apply(Planned(phase="eval", round=1, task="t", samples=0))
    assert list(index.keys()) == [key("t", 0), key("t", 1)]


def test_what_is_no_longer_planned_has_no_outcome_that_counts() -> None:
    index = Index()
    for task in "abc":
        index.apply(Planned(phase="eval", round=0, task=task, samples=2))
        for sample in range(2):
            index.apply(Sealed(episode=episode(key(task, sample)), epoch=1))
    index.apply(Planned(phase="eval", round=0, task="a", samples=1, revised=True))
    index.apply(Planned(phase="eval", round=0, task="b", samples=0, revised=True))
    assert list(index.keys()) == [key("a"), key("c", 0), key("c", 1)]
    assert [each.key for each in index.outcomes()] == list(index.keys())
    assert (index.done, index.unfinished()) == (3, [])
    assert [index.dropped(key(task, 1)) for task in "abc"] == [True, True, False]
    assert index.episode(key("b")) == episode(key("b")), "it is still known"
    index.apply(Planned(phase="eval", round=0, task="a", samples=3, revised=True))
    assert (index.done, index.unfinished()) == (4, [key("a", 2)])


def test_a_plan_that_was_cut_off_is_not_finished() -> None:
    index = Index()
    index.apply(Opened(epoch=1, at=1.0))
    assert (index.plan_is_whole, index.finished) == (False, False), "nothing is planned yet"
    for task in "ab":
        index.apply(Planned(phase="eval", round=0, task=task, samples=1, of=3))
        index.apply(Sealed(episode=episode(key(task)), epoch=1))
    assert (index.unplanned("eval", 0), index.unfinished(), index.finished) == (1, [], False)
    index.apply(Planned(phase="eval", round=0, task="c", samples=1, of=3))
    assert (index.plan_is_whole, index.finished) == (True, False)
    index.apply(Sealed(episode=episode(key("c")), epoch=1))
    assert index.finished
    index.apply(Planned(phase="eval", round=0, task="a", samples=0, of=2, revised=True))
    assert (index.unplanned("eval", 0), index.finished) == (0, True)
    index.apply(Planned(phase="eval", round=0, task="d", samples=1, of=4))
    assert (index.unplanned("eval", 0), index.finished) == (1, False), "a revision may be cut off as well"


@pytest.mark.parametrize("bad", [b"{", b"", b'{"type":"nonsense"}', b'{"type":"opened","epoch":"x","at":1}', b"\xff"])
def test_a_broken_line_is_named(bad: bytes) -> None:
    good = journal.encode(Opened(epoch=1, at=1.0))
    with pytest.raises(StoreError, match=r"some/journal.jsonl, line 2: cannot be read .*: restore it, or take"):
        Index.load(good + bad + b"\n" + good, "some/journal.jsonl")


def test_a_line_that_contradicts_others_is_named() -> None:
    data = journal.encode(Sealed(episode=episode(key()), epoch=1))
    with pytest.raises(StoreError, match=r"journal.jsonl, line 2: episode eval/0/task/0 has an outcome already"):
        Index.load(data * 2, "journal.jsonl")


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(StoreError, match="cannot be written to the journal"):
        journal.encode(Planned(phase="eval", round=0, task="\ud800", samples=1))


@settings(max_examples=20)
@given(st.lists(_keys, unique=True))
def test_an_outcome_in_brief_says_what_decides(keys: list[EpisodeKey]) -> None:
    data = b"".join(journal.encode(Sealed(episode=lost(of), epoch=1)) for of in keys)
    index = Index.load(data, "journal.jsonl")
    for of in keys:
        brief = index.outcome(of)
        assert brief is not None
        assert brief.failure is not None
        full = lost(of)
        assert full.failure is not None
        assert (brief.score.value, brief.failure.failure_class) == (None, full.failure.failure_class)
        assert index.episode(of) == full


@given(st.lists(RECORDS, max_size=60))
def test_whoever_keeps_outcomes_in_brief_decides_alike(records: list[JournalRecord]) -> None:
    index, taken = accepted(records)
    brief = Index()
    for record in taken:
        brief.apply_in_brief(record)
    decided = [(each.done, each.stale, each.epoch, each.unfinished(), each.plan_is_whole) for each in (index, brief)]
    assert decided[0] == decided[1]
    for of in index.entries:
        assert brief.attempts(of) == index.attempts(of)
        full, kept = index.outcome(of), brief.outcome(of)
        assert (full is None) == (kept is None)
        if full is not None and kept is not None:
            assert (kept.key, kept.attempt, kept.stop) == (of, full.attempt, full.stop)
            assert kept.score.value == full.score.value
            assert (kept.failure is None) == (full.failure is None)
            with pytest.raises(StoreError, match="only what decides is kept"):
                brief.episode(of)


def test_without_its_text_an_index_knows_outcomes_in_brief() -> None:
    index = Index.load(journal.encode(Sealed(episode=episode(key()), epoch=1)), "journal.jsonl")
    index.forget_text()
    known = index.outcome(key())
    assert known is not None and known.score.value == episode(key()).score.value
    assert list(index.records(Sealed)) == []


def test_a_hundred_thousand_episodes_are_read_in_a_moment() -> None:
    """About 0.5 s here; the limit leaves room for a busy machine, not for another way of reading."""
    template = journal.encode(Sealed(episode=episode(key("0000000"), seconds=dict.fromkeys("abcdefgh", 1.25)), epoch=1))
    begun = journal.encode(Started(key=key("0000000"), attempt=1, epoch=1, worker="w1", at=1.5))
    lines = (begun + template for _ in range(100_000))
    data = b"".join(each.replace(b"0000000", b"%07d" % number) for number, each in enumerate(lines))
    begun_at = time.process_time()
    index = Index.load(data, "journal.jsonl")
    assert time.process_time() - begun_at < 3.0
    assert index.done == 100_000
    assert msgspec.structs.replace(index.outcomes()[77].key, task="0000000") == key("0000000")
