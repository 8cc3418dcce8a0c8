"""`deskroll` as a person calls it, without the second that each start takes.

One process imports everything and forks for each command: real arguments, working directory, environment, standard
streams and exit code, through the program's own entry point.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LONGEST_S = 150
_WARM = (
    "deskroll.cli.run", "deskroll.cli.run_plan", "deskroll.conduct.run", "deskroll.cli.status",
    "deskroll.cli.train", "deskroll.cli.train_plan", "deskroll.train.scripted",
    "deskroll.envs.math", "deskroll.envs.osworld.env", "deskroll.agents.chat",
    "deskroll.desktops.providers.sim.provider",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """What came of a command."""

    code: int
    out: str
    err: str


class Commands:
    """Runs commands, one after the other. Use with `with`."""

    def __init__(self, **env: str) -> None:
        self._env = env
        """Added to the environment of whoever imports everything: where plug-ins are, for one."""

    def __enter__(self) -> Commands:
        command = [sys.executable, "-m", "tests.commands"]
        root = Path(__file__).parent.parent
        env = {**os.environ, **self._env}
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(command, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.communicate()

    def __call__(self, *args: str, cwd: Path, env: Mapping[str, str]) -> Ended:
        """Run `deskroll` with these arguments to its end, within a time that is long for any of them."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with tempfile.TemporaryDirectory(prefix="deskroll-command-") as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            order = {"args": args, "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            code = json.loads(self._server.stdout.readline())
            return Ended(code, out.read_text(), err.read_text())


def clean_environment(runtime: Path, **more: str) -> dict[str, str]:
    """This environment less what would reach somebody's model or run, with a runtime folder of its own."""
    ours = ("DESKROLL_", "OPENAI_")
    names = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**names, "DESKROLL_RUNTIME_DIR": str(runtime), "COLUMNS": "100", **more}


def _serve() -> None:
    for name in _WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(order)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(order: dict[str, object]) -> None:
    code: object = 70
    try:
        signal.alarm(_LONGEST_S)
        for number, path in ((1, order["out"]), (2, order["err"])):
            os.dup2(os.open(str(path), os.O_WRONLY | os.O_CREAT, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(str(order["cwd"]))
        os.environ.clear()
        os.environ.update(order["env"])  # type: ignore[call-overload]
        sys.modules["__main__"].__package__ = None  # so that messages call the program by its name
        sys.argv = ["deskroll", *order["args"]]  # type: ignore[misc]
        from deskroll.cli.main import main  # noqa: PLC0415  (not when the tests themselves import this)

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  (as the interpreter does)
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve()
