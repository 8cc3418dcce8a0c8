"""What a guest has to know before it starts."""

from __future__ import annotations

from deskroll.types import Record


class GuestSettings(Record, frozen=True):
    """One guest's settings, handed over by whoever made the sandbox."""

    id: str
    width: int
    height: int
    env: dict[str, str]
    """Environment of the session and of everything that runs in it; HOME and XDG_RUNTIME_DIR are its folders."""
    state: str
    """Folder for the guest's own files: framebuffer, logs, the password for sudo."""
    display: str = ""
    """X display to make, e.g. `:0`; empty: a free one."""
    sandboxed: bool = True
    """Whether it runs in a pid namespace of its own."""
    password: str = ""
    token: str = ""
    """Bearer token that requests must carry; empty for none."""
