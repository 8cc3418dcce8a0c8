"""Actions as hypothesis draws them: all that fit the screen, in canonical form."""

from hypothesis import strategies as st

from deskroll.actions import (
    KEYS,
    Action,
    Click,
    Done,
    DoubleClick,
    DragTo,
    Fail,
    Hotkey,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    MoveTo,
    Press,
    RightClick,
    Scroll,
    Typing,
    Wait,
)

WIDTH, HEIGHT = 1920, 1080

xs = st.integers(0, WIDTH - 1)
ys = st.integers(0, HEIGHT - 1)
points = st.tuples(xs, ys) | st.just((None, None))
buttons = st.sampled_from(["left", "middle", "right"])
characters = st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t\r")
texts = st.text(characters)
keys = st.sampled_from(sorted(KEYS)) | st.characters().filter(lambda c: c.isprintable() and c != " ")
turns = st.integers(-1000, 1000)
waits = st.builds(Wait, st.floats(0, 300))
clicks = st.builds(lambda b, p, n: Click(b, *p, n), buttons, points, st.integers(1, 3))

pointer: st.SearchStrategy[Action] = st.one_of(
    st.builds(MoveTo, xs, ys),
    clicks,
    st.builds(MouseDown, buttons),
    st.builds(MouseUp, buttons),
    points.map(lambda p: RightClick(*p)),
    points.map(lambda p: DoubleClick(*p)),
    st.builds(DragTo, xs, ys),
)
scrolls = st.builds(Scroll, dx=turns) | st.builds(Scroll, dy=turns)
keyboard: st.SearchStrategy[Action] = st.one_of(
    st.builds(Typing, texts),
    st.builds(Press, keys),
    st.builds(KeyDown, keys),
    st.builds(KeyUp, keys),
    st.builds(Hotkey, st.lists(keys, min_size=1, max_size=4).map(tuple)),
)
words: st.SearchStrategy[Action] = st.sampled_from([Wait(), Done(), Fail()])
actions: st.SearchStrategy[Action] = st.one_of(
    pointer, st.builds(Scroll, turns, turns), scrolls, keyboard, waits, words
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
