"""What code prints and gives: beginning and end are kept, the middle is dropped, the cut is stated. Bounded memory."""

from __future__ import annotations


class Output:
    """Bytes of which at most about `chars` characters can be shown."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._room = chars * 4  # no character is longer in UTF-8
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Take note of more."""
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > 2 * self._room:
            surplus = len(self._tail) - self._room
            del self._tail[:surplus]
            self._dropped += surplus

    def text(self, chars: int | None = None) -> str:
        """What is shown of it: so many characters, or as many as can be."""
        chars = self._chars if chars is None else min(chars, self._chars)
        if not self._dropped:
            text = (self._head + self._tail).decode(errors="replace")
            if len(text) <= chars:
                return text
            head, tail = text, text
        else:
            head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        first, last = head[: chars // 2], tail[-(chars // 2) :]
        shown = len(first.encode()) + len(last.encode())
        left_out = max(self._dropped + len(self._head) + len(self._tail) - shown, 0)
        return f"{first}\n[... about {left_out:,} bytes left out ...]\n{last}"


class Said:
    """What one snippet printed, and what it gave: a value, or a traceback. Neither can push the other out."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self.printed = Output(chars)
        self.shown = Output(chars)

    def text(self) -> str:
        """Both, the value last."""
        shown = self.shown.text()
        printed = self.printed.text(max(self._chars - len(shown), self._chars // 2))
        if len(printed) + len(shown) > self._chars:
            shown = self.shown.text(max(self._chars - len(printed), self._chars // 2))
        if printed and shown and not printed.endswith("\n"):
            printed += "\n"
        return printed + shown
