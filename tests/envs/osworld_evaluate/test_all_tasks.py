"""Every getter and metric of all of OSWorld's tasks resolves to code."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskroll.envs.osworld.evaluate.choice import Judge, has_part
from deskroll.envs.osworld.evaluate.parts import INFEASIBLE, Part, evaluation_of
from deskroll.envs.osworld.evaluate.upstream import names
from tests.tasks.shared import OSWORLD, needs_osworld

OURS_ALONE = {
    "vlc/5ac2891a-eacd-4954-b339-98abba077adb": "upstream's package lacks check_play_and_exit",
    "chrome/93eabf48-6a27-4cb6-b963-7d5fe1e0d3a9": "upstream's package lacks the getter chrome_appearance_mode_ui",
}
NOT_SCORED: dict[str, str] = {
    "compare_image_text": "reads text in images by easyocr, which is too heavy to be installed",
}
"""Metrics that resolve to code, and are not scored all the same."""


def evaluators() -> Iterator[tuple[str, tuple[Part, ...]]]:
    for root in ("examples", "examples_windows"):
        for path in sorted((OSWORLD / root).rglob("*.json")):
            task = json.loads(path.read_text())
            yield f"{path.parent.name}/{path.stem}", evaluation_of(task["evaluator"]).parts


@needs_osworld
def test_every_part_of_every_task_is_judged_by_somebody() -> None:
    tasks, alone = 0, set()
    for name, parts in evaluators():
        tasks += 1
        for part in parts:
            if part.func == INFEASIBLE:
                continue
            having = [judge for judge in (Judge.NATIVE, Judge.UPSTREAM) if has_part(judge, part)]
            assert having, (name, part.func, [g.type for g in part.getters])
            if Judge.UPSTREAM not in having:
                alone.add(name)
    assert tasks == 369 + 49
    assert alone == set(OURS_ALONE)


@needs_osworld
def test_what_is_listed_as_not_scored_is_in_use() -> None:
    used = {part.func for _, parts in evaluators() for part in parts}
    assert set(NOT_SCORED) <= used
    assert used >= names.SUPPLEMENT


def test_the_names_are_the_packages_own() -> None:
    found = importlib.util.find_spec("desktop_env")
    if found is None or not found.submodule_search_locations:
        pytest.skip("desktop-env is not here")
    folder = Path(next(iter(found.submodule_search_locations))) / "evaluators"
    getters = {name.removeprefix("get_") for name in _exported(folder / "getters")}
    assert getters == names.GETTERS
    assert _exported(folder / "metrics") - {INFEASIBLE, "get_unique_train_ids"} == names.METRICS - names.SUPPLEMENT


def _exported(folder: Path) -> set[str]:
    tree = ast.parse((folder / "__init__.py").read_text())
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    return imported | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
