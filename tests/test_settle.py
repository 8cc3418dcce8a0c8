"""When a screen has settled: the rules, without a screen."""

from hypothesis import given
from hypothesis import strategies as st

from deskroll.desktops.base import Settle, SettleOutcome
from deskroll.desktops.x11.settle import Change, Rect, Settler, periodic_regions

RULES = Settle(react=0.4, quiet=0.15, cap=2.0)
WINDOW = Rect(100, 100, 600, 400)
BUTTON = Rect(200, 200, 80, 30)
CARET = Rect(300, 300, 2, 18)


def outcome_at(
    settler: Settler, changes: list[Change], *, busy_until: float = 0.0, read_at: float = 0.0
) -> tuple[SettleOutcome, float]:
    """Play changes to a settler whose action ended at 0, and tell what it says and when."""
    settler.acted(0.0)
    now, waiting, read = 0.0, sorted(changes), False
    while True:
        if not read and now >= read_at:
            settler.read(now)
            read = True
        answer = settler.poll(now, busy=now < busy_until)
        if isinstance(answer, SettleOutcome):
            return answer, now
        assert answer > now
        if not read and read_at <= answer and not (waiting and waiting[0].at < read_at):
            now = read_at
        elif waiting and waiting[0].at <= answer:
            now = max(now, waiting[0].at)
            settler.changed(waiting.pop(0))
        else:
            now = answer


def settler(*, clicked: bool = False, ignored: tuple[Rect, ...] = (), rules: Settle = RULES) -> Settler:
    return Settler(rules, 0.0, ignored, clicked=clicked)


def test_no_reaction_ends_after_react() -> None:
    assert outcome_at(settler(), []) == (SettleOutcome.NO_REACTION, 0.4)


def test_a_change_is_followed_until_it_is_quiet() -> None:
    changes = [Change(at, WINDOW) for at in (0.05, 0.12, 0.2)]
    assert outcome_at(settler(), changes) == (SettleOutcome.SETTLED, 0.2 + 0.15)


def test_a_late_first_change_is_waited_for() -> None:
    assert outcome_at(settler(), [Change(0.39, WINDOW)]) == (SettleOutcome.SETTLED, 0.39 + 0.15)


def test_endless_changes_are_capped() -> None:
    changes = [Change(n / 10, WINDOW) for n in range(50)]
    assert outcome_at(settler(), changes) == (SettleOutcome.CAPPED, 2.0)


def test_after_a_click_a_pressed_button_is_not_the_answer() -> None:
    changes = [Change(0.01, BUTTON), Change(0.35, WINDOW)]
    assert outcome_at(settler(clicked=True), changes) == (SettleOutcome.SETTLED, 0.35 + 0.15)
    assert outcome_at(settler(clicked=False), changes) == (SettleOutcome.SETTLED, 0.01 + 0.15)
    assert outcome_at(settler(clicked=True), changes[:1]) == (SettleOutcome.SETTLED, 0.4)


def test_time_stands_still_while_a_program_waits_for_the_cpu() -> None:
    outcome, at = outcome_at(settler(), [Change(0.7, WINDOW)], busy_until=0.72)
    assert outcome is SettleOutcome.SETTLED
    assert at >= 0.85
    assert outcome_at(settler(), [], busy_until=100.0) == (SettleOutcome.NO_REACTION, 2.0)


def test_nothing_counts_before_the_input_was_read() -> None:
    started = [Change(0.01, WINDOW)]  # the window that has just appeared is painted
    assert outcome_at(settler(), started, read_at=1.0) == (SettleOutcome.SETTLED, 1.0 + 0.15)
    assert outcome_at(settler(), [*started, Change(1.1, WINDOW)], read_at=1.0) == (SettleOutcome.SETTLED, 1.1 + 0.15)
    assert outcome_at(settler(), [], read_at=1.0) == (SettleOutcome.NO_REACTION, 1.0 + 0.4)
    assert outcome_at(settler(), started, read_at=9.0) == (SettleOutcome.CAPPED, 2.0)
    assert outcome_at(settler(), [], read_at=9.0) == (SettleOutcome.CAPPED, 2.0)


def test_what_blinked_before_is_ignored() -> None:
    history = [Change(-1.8, CARET), Change(-1.2, CARET), Change(-0.6, CARET), Change(-1.0, WINDOW)]
    regions = periodic_regions(history)
    assert len(regions) == 1
    assert regions[0].contains(CARET)
    blinks = [Change(n * 0.1, CARET) for n in range(1, 40)]
    assert outcome_at(settler(ignored=tuple(regions)), blinks) == (SettleOutcome.NO_REACTION, 0.4)


def test_what_changed_once_or_is_large_is_not_periodic() -> None:
    assert periodic_regions([Change(-0.6, CARET)]) == []
    assert periodic_regions([Change(-1.0, WINDOW), Change(-0.5, WINDOW)]) == []
    assert periodic_regions([Change(-0.51, CARET), Change(-0.5, CARET)]) == []


times = st.floats(0, 3, allow_nan=False)
rects = st.builds(Rect, st.integers(0, 900), st.integers(0, 900), st.integers(1, 900), st.integers(1, 900))


@given(st.lists(st.builds(Change, times, rects), max_size=30), st.booleans(), times, times)
def test_it_always_ends_and_never_before_it_is_quiet(
    changes: list[Change], clicked: bool, busy_until: float, read_at: float
) -> None:
    outcome, at = outcome_at(settler(clicked=clicked), changes, busy_until=busy_until, read_at=read_at)
    assert at <= RULES.cap + 1e-9
    assert outcome is SettleOutcome.CAPPED or at >= read_at
    seen = [change.at for change in changes if change.at <= at]
    if outcome is SettleOutcome.NO_REACTION:
        assert not [change for change in seen if change < at]
        assert at >= RULES.react - 1e-9
    if outcome is SettleOutcome.SETTLED and at < RULES.cap:
        assert at - max(seen) >= RULES.quiet - 1e-9
