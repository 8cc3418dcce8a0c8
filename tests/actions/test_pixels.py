"""From a model's coordinates to the screen's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions.noting import noting
from deskroll.actions.pixels import THOUSAND, Grid, Picture, smart_resize
from deskroll.errors import ActionError

sides = st.integers(1, 8000)


@given(st.tuples(sides, sides), st.tuples(sides, sides), st.data())
def test_every_point_of_a_grid_is_a_pixel_of_the_screen(
    cells: tuple[int, int], screen: tuple[int, int], data: st.DataObject
) -> None:
    x, y = data.draw(st.floats(0, cells[0])), data.draw(st.floats(0, cells[1]))
    across, down = Grid(cells=cells, screen=screen).pixel(x, y)
    assert 0 <= across < screen[0]
    assert 0 <= down < screen[1]


@given(st.integers(0, 1919), st.integers(0, 1079))
def test_where_the_grid_is_the_screen_nothing_changes(x: int, y: int) -> None:
    assert Grid(cells=(1920, 1080), screen=(1920, 1080)).pixel(x, y) == (x, y)


@pytest.mark.parametrize(
    ("point", "pixel"),
    [((-1, 5), (0, 5)), ((5, -0.5), (9, 0)), ((1001, 5), (1919, 5)), ((5, 1e300), (9, 1079))],
)
def test_other_points_are_brought_to_the_edge(point: tuple[float, float], pixel: tuple[int, int]) -> None:
    with noting() as notes:
        assert Grid(cells=THOUSAND, screen=(1920, 1080)).pixel(*point) == pixel
    assert re.fullmatch(r"\(.*\) is off the screen, which is 1000x1000; taken: \(.*\)", notes[0])


@pytest.mark.parametrize(
    ("size", "limits", "resized"),
    [  # tests/agents/test_upstream.py compares with what OSWorld's own agent computes
        ((1920, 1080), (78_400, 12_845_056), (1932, 1092)),
        ((1280, 720), (78_400, 12_845_056), (1288, 728)),
        ((1920, 1080), (3136, 1_003_520), (1316, 728)),
        ((100, 100), (78_400, 12_845_056), (280, 280)),
        ((3840, 2160), (3136, 12_845_056), (3836, 2156)),
    ],
)
def test_images_are_resized_as_the_models_processors_do(
    size: tuple[int, int], limits: tuple[int, int], resized: tuple[int, int]
) -> None:
    assert smart_resize(size, factor=28, least=limits[0], most=limits[1]) == resized


@given(st.tuples(sides, sides), st.tuples(sides, sides), st.data())
def test_every_pixel_of_a_picture_is_one_of_the_screen(
    shown: tuple[int, int], screen: tuple[int, int], data: st.DataObject
) -> None:
    x, y = data.draw(st.integers(0, shown[0] - 1)), data.draw(st.integers(0, shown[1] - 1))
    across, down = Picture(shown=shown, screen=screen).pixel(x, y)
    assert 0 <= across < screen[0]
    assert 0 <= down < screen[1]
    if screen[0] >= shown[0] and screen[1] >= shown[1]:  # a finer screen: the way back is the same
        assert Picture(shown=screen, screen=shown).pixel(across, down) == (x, y)


@pytest.mark.parametrize("point", [(-1, 5), (5, -1), (960, 5), (5, 540)])
def test_what_is_no_pixel_of_the_picture_is_refused(point: tuple[int, int]) -> None:
    with pytest.raises(ActionError, match="is off the picture; allowed: x 0 to 959, y 0 to 539"):
        Picture(shown=(960, 540), screen=(1920, 1080)).pixel(*point)
