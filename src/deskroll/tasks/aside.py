"""What is kept of a bad batch that lies in no folder of its own: its content, and what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

from deskroll.tasks.batches import BadBatch, SourceError

_ODD = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 80


def keep_aside(folder: Path, name: str, bad: BadBatch, data: bytes) -> str:
    """Write it into a folder, under a name that leads nowhere else; where it is."""
    stem, dot, suffix = _ODD.sub("_", name)[-_LONGEST:].lstrip(".").rpartition(".")
    path = folder / f"{stem or suffix}-{bad.digest[:8]}{dot if stem else '.'}{suffix if stem else 'json'}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_name(f"{path.name}.error").write_text(f"{bad.error}\n", encoding="utf-8", errors="replace")
    except OSError as error:
        raise SourceError(f"batch {name!r} cannot be set aside in {folder}: {error.strerror}") from error
    return str(path)
