"""The folder of what deskroll keeps on a host: whose it must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.errors import BootError
from deskroll.host.runtime_folder import runtime_root


def test_a_runtime_folder_is_taken_as_it_is_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, fits in ((0o700, True), (0o755, True), (0o777, False), (0o1777, False)):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        folder.chmod(mode)
        monkeypatch.setenv("DESKROLL_RUNTIME_DIR", str(folder))
        if fits:
            assert runtime_root() == folder
        else:
            with pytest.raises(BootError, match="others may write"):
                runtime_root()
        assert folder.stat().st_mode & 0o7777 == mode, "nobody asked to change it"
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("DESKROLL_RUNTIME_DIR", str(file))
    with pytest.raises(BootError, match="is not a folder"):
        runtime_root()
