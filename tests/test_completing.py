"""What the shell offers for values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Commands
from tests.report.runs import make_run


class Shell:
    """Asks as bash does: the words so far, the last of which is being written."""

    def __init__(self, commands: Commands, place: Path, env: dict[str, str]) -> None:
        self._commands, self._place, self._env = commands, place, env

    def __call__(self, *words: str) -> list[str]:
        asked = {"_DESKROLL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["deskroll", *words])}
        asked["COMP_CWORD"] = str(len(words))
        ended = self._commands(cwd=self._place, env={**self._env, **asked})
        assert (ended.code, ended.err) == (0, "")
        return list(filter(None, ended.out.splitlines()))


@pytest.fixture
def shell(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> Shell:
    return Shell(deskroll, tmp_path, env)


def test_names_of_parts(shell: Shell) -> None:
    assert shell("run", "--env", "ma") == ["plain,math"]
    assert {"plain,chat", "plain,noop"} <= set(shell("run", "--agent", ""))
    assert shell("run", "--agent", "my_ag") == ["file,my_ag"]


async def test_runs_and_their_tasks(shell: Shell, tmp_path: Path) -> None:
    await make_run(tmp_path / "results/first", tasks=2, samples=1)
    for command in ("show", "report", "stats"):
        assert shell(command, "re") == ["plain,results/first"]
    assert shell("report", "results/no") == ["dir,results/no"]
    assert shell("compare", "results/first", "results/f") == ["plain,results/first"]
    tasks = shell("show", "results/first", "")
    assert len(tasks) == 2
    assert shell("show", "results/first", tasks[0].removeprefix("plain,")) == tasks[:1]
    assert shell("show", "results/none", "") == []


async def test_a_name_that_is_an_order_is_not_offered(shell: Shell, tmp_path: Path) -> None:
    await make_run(tmp_path / "results/odd", tasks=1, samples=1, hostile="\x1b[2J\nplain,other")
    assert shell("show", "results/odd", "") == []
