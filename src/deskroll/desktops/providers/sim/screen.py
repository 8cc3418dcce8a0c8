"""Screen: what a simulated desktop shows. Cells of 16 pixels in 16 colours, which answer to every action.

Guarantees: the same actions on a new screen of the same size give the same picture, byte for byte.
"""

from __future__ import annotations

import hashlib
import zlib

from deskroll import actions
from deskroll.desktops.providers.sim import png
from deskroll.desktops.providers.sim.png import CELL

_STEP = {"left": 1, "middle": 3, "right": 7}
"""How much further in the palette a click with each button takes a cell."""
_ARROWS = {"left": -1, "right": 1}


class Screen:
    """Cells, a pointer and a text cursor."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.columns, self.rows = -(-width // CELL), -(-height // CELL)
        self.pointer = (width // 2, height // 2)
        self._cells = bytearray(self.columns * self.rows)
        self._text = 0
        """The cell that the next character goes to; a click puts it there."""
        self._pressed = False
        self._png: bytes | None = None

    def png(self) -> bytes:
        """The picture with the pointer, full size."""
        if self._png is None:
            cells = bytearray(self._cells)
            cells[self._at(*self.pointer)] ^= 15
            rows = [bytes(cells[start : start + self.columns]) for start in range(0, len(cells), self.columns)]
            self._png = png.encode(rows, self.width, self.height)
        return self._png

    def digest(self) -> str:
        """Names what is shown: equal for equal pictures."""
        shown = f"{self.width}x{self.height} {self._at(*self.pointer)} ".encode() + self._cells
        return hashlib.blake2b(shown, digest_size=16).hexdigest()

    def perform(self, action: actions.ComputerAction) -> None:
        """React to an action that `actions.check` let through."""
        self._png = None
        match action:
            case actions.MoveTo(x=x, y=y):
                self._move(x, y, draw=self._pressed)
            case actions.DragTo(x=x, y=y):
                self._move(x, y, draw=True)
            case actions.Click(button=button, num_clicks=clicks):
                self._click(action.x, action.y, _STEP[button] * clicks)
            case actions.RightClick(x=x, y=y):
                self._click(x, y, _STEP["right"])
            case actions.DoubleClick(x=x, y=y):
                self._click(x, y, 2 * _STEP["left"])
            case actions.MouseDown() | actions.MouseUp():
                self._pressed = isinstance(action, actions.MouseDown)
            case actions.Scroll(dx=dx, dy=dy):
                self._scroll(dx, dy)
            case actions.Typing(text=text):
                for character in text:
                    self._type(character)
            case actions.Press(key=key):
                self._press(actions.canonical_key(key))
            case actions.KeyDown(key=key) | actions.KeyUp(key=key):
                self._mark(actions.canonical_key(key))
            case actions.Hotkey(keys=keys):
                self._mark("+".join(map(actions.canonical_key, keys)))

    def fill(self, x: int, y: int, width: int, height: int, name: str) -> None:
        """Show a window: a rectangle in the colour of its name."""
        self._png = None
        columns = range(x // CELL, min((x + width) // CELL, self.columns))
        for row in range(y // CELL, min((y + height) // CELL, self.rows)):
            for column in columns:
                self._cells[row * self.columns + column] = _colour(name)

    def _at(self, x: int, y: int) -> int:
        return y // CELL * self.columns + x // CELL

    def _click(self, x: int | None, y: int | None, step: int) -> None:
        if x is not None and y is not None:
            self.pointer = (x, y)
        cell = self._text = self._at(*self.pointer)
        self._cells[cell] = (self._cells[cell] + step) % 16

    def _move(self, x: int, y: int, *, draw: bool) -> None:
        if draw:
            (column, row), (to_column, to_row) = ((at[0] // CELL, at[1] // CELL) for at in (self.pointer, (x, y)))
            steps = max(abs(to_column - column), abs(to_row - row), 1)
            for n in range(steps + 1):
                at_row, at_column = row + (to_row - row) * n // steps, column + (to_column - column) * n // steps
                self._cells[at_row * self.columns + at_column] = 9
        self.pointer = (x, y)

    def _scroll(self, dx: int, dy: int) -> None:
        """Turn the cells round, as on a cylinder: what leaves on one side comes in on the other."""
        down = dy * self.columns % len(self._cells)
        cells = self._cells[-down:] + self._cells[:-down] if down else self._cells
        left = dx % self.columns
        if left:
            rows = (cells[start : start + self.columns] for start in range(0, len(cells), self.columns))
            cells = bytearray().join(row[left:] + row[:left] for row in rows)
        self._cells = cells

    def _type(self, character: str) -> None:
        if character == "\n":
            self._text = (self._text // self.columns + 1) * self.columns % len(self._cells)
        else:
            self._cells[self._text] = 1 + ord(character) % 15
            self._text = (self._text + 1) % len(self._cells)

    def _press(self, key: str) -> None:
        if len(key) == 1 or key in ("enter", "space"):
            self._type({"enter": "\n", "space": " "}.get(key, key))
        elif key == "backspace":
            self._text = (self._text - 1) % len(self._cells)
            self._cells[self._text] = 0
        elif key in _ARROWS:
            self._text = (self._text + _ARROWS[key]) % len(self._cells)
        else:
            self._mark(key)

    def _mark(self, name: str) -> None:
        """Change the cell of the lowest row that belongs to this key or chord."""
        cell = len(self._cells) - self.columns + zlib.crc32(name.encode()) % self.columns
        self._cells[cell] = (self._cells[cell] + 1) % 16


def _colour(name: str) -> int:
    return 1 + zlib.crc32(name.encode(errors="replace")) % 15
