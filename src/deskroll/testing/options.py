"""The flags of the contract suites: a plug-in of pytest that does nothing unless somebody runs `deskroll.testing`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deskroll.registry import KINDS

_SUITES = "deskroll.testing"
_FOLDER = Path(__file__).parent


def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the flags, where a suite is named: nobody else shall find them taken."""
    if not any(arg.startswith((_SUITES, str(_FOLDER))) for arg in args):
        return
    group = parser.getgroup("deskroll")
    for kind in KINDS:
        what = kind.replace("_", " ")
        group.addoption(
            f"--{kind.replace('_', '-')}",
            dest=f"deskroll_{kind}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"test this {what}: a name, package.module:Class or FILE.py:Class",
        )
    group.addoption("--plugin-options", default="{}", metavar="JSON", help="its options (of a model: its settings)")
    group.addoption("--plugin-tasks", default="", metavar="FILE", help="tasks for an environment or an agent")
    group.addoption("--plugin-checkpoint", default="", metavar="DIR", help="a model, for a trainer")
    group.addoption("--plugin-example", default="", metavar="JSON", help="a call's arguments, for an action space")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the suites of kinds of which nothing was named."""
    if collection_path.parent != _FOLDER or not collection_path.name.startswith("test_"):
        return None
    kind = collection_path.stem.removeprefix("test_")
    if not any(_names(config, each) for each in KINDS):
        raise pytest.UsageError("name what to test, e.g. --provider my_package.mine:Mine")
    return True if kind in KINDS and not _names(config, kind) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each check of a suite for each plug-in of its kind; checks of no kind, for all of them."""
    if "chosen" not in metafunc.fixturenames or not metafunc.module.__name__.startswith(_SUITES):
        return
    from deskroll.testing import Chosen  # noqa: PLC0415  (not for every pytest on this machine)

    config, own = metafunc.config, metafunc.module.__name__.rpartition("test_")[2]
    found = [
        Chosen(
            kind=kind,
            name=name,
            options=_json(config, "plugin_options"),
            tasks=Path(tasks) if (tasks := config.getoption("plugin_tasks")) else None,
            example=_json(config, "plugin_example") or None,
            checkpoint=Path(model).absolute() if (model := config.getoption("plugin_checkpoint")) else None,
        )
        for kind in KINDS
        if own not in KINDS or own == kind
        for name in _names(config, kind)
    ]
    metafunc.parametrize("chosen", found, ids=[each.name for each in found])


def _names(config: pytest.Config, kind: str) -> list[str]:
    names: list[str] = config.getoption(f"deskroll_{kind}", default=[])
    return names


def _json(config: pytest.Config, name: str) -> dict[str, Any]:
    try:
        given = json.loads(config.getoption(name) or "{}")
    except ValueError as error:
        raise pytest.UsageError(f"--{name.replace('_', '-')} is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise pytest.UsageError(f"--{name.replace('_', '-')} must be a JSON object")
    return given
