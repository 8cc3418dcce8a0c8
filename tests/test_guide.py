"""docs/zh/guide.md: its commands run as they are written, one after the other, and leave what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.field_docs import describe
from deskroll.rollout.config import RunConfig
from deskroll.store import Run
from tests.commands import clean_environment

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "zh" / "guide.md").read_text()
RUNS = {  # where each is, how many episodes it has
    "math-1": 10, "math-2": 10, "desk-1": 2, "groups": 16, "documents": 10, "vmware": 1,
}  # fmt: skip


@pytest.mark.timeout(600)  # seven runs one after the other, of which two on desktops
def test_its_commands_run(tmp_path: Path, runtime_folder: Path) -> None:
    for name in ("src", "data", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    bin_folder = Path(sys.executable).parent
    env = clean_environment(runtime_folder, PATH=f"{bin_folder}:{os.environ['PATH']}")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 10
    said = []
    for language, block in blocks:
        command = ["bash", "-euc", block] if language == "sh" else ["python", "-c", block]
        ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=150, check=False)
        assert ended.returncode == 0, f"{block}\n{ended.stdout}\n{ended.stderr}"
        said.append(ended.stdout + ended.stderr)
    assert "provider vmware was asked for; DESKROLL_PROVIDER=local takes its place" in said[-2]
    assert all((tmp_path / name).stat().st_size for name in ("report.html", "episodes.csv"))
    kept = {path.parent: Run.open(path.parent).outcomes() for path in (tmp_path / "results").rglob("run.json")}
    found = {name: len(kept[place]) for place in kept for name in place.parts if name in RUNS}
    assert found == RUNS
    assert len(kept) == len(RUNS) + 1  # and that of Python, which is named by its time
    assert all(episode.success for outcomes in kept.values() for episode in outcomes)


def test_its_defaults_are_the_settings_own() -> None:
    section = GUIDE[GUIDE.index("## 设置") : GUIDE.index("## 结果")]
    rows = re.findall(r"^\| (`\S+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    assert len(rows) == 11
    for names, defaults in rows:
        for name, default in zip(names.split("、"), defaults.split("、"), strict=False):
            shown = describe(RunConfig, name.strip("`")).shown_default
            assert shown == ("" if default in ("无", "开始时间") else default.strip("`")), name
