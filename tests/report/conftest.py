"""Runs on disk, made once."""

from pathlib import Path

import pytest

from tests.report.runs import make_run

HOSTILE = '</script><img src=x onerror="alert(1)"><!--\x1b[31m\u2028"\'{{7*7}}'


@pytest.fixture(scope="session")
async def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 episodes over four domains, two samples a task, every class of failure, four not run."""
    root = tmp_path_factory.mktemp("full") / "full-run"
    await make_run(root, leave=4)
    return root


@pytest.fixture(scope="session")
async def repeat_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs over the same twelve tasks, one sample each."""
    folder = tmp_path_factory.mktemp("repeats")
    roots = [folder / "repeat-1", folder / "repeat-2"]
    await make_run(roots[0], tasks=12, samples=1, failures=())
    await make_run(roots[1], tasks=12, samples=1, skill=1.4)
    return roots


@pytest.fixture(scope="session")
async def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four episodes whose ids, questions, answers, thoughts and errors try to break out."""
    root = tmp_path_factory.mktemp("hostile") / "hostile-run"
    await make_run(root, tasks=4, samples=1, hostile=HOSTILE)
    return root
