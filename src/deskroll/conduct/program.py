"""A command as a program: how to call it again, and its errors as one message and an exit code.

Exit codes: 0 all went well; 1 something did not; 2 bad input or something to install first; 130 interrupted.
Nothing heavy is imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from pathlib import Path

import click

from deskroll.conduct.terminals import lasting
from deskroll.errors import DeskrollError, InputError, MissingDependency, plain


def program() -> str:
    """How to call this program again, for hints that can be pasted."""
    if shutil.which("deskroll"):
        return "deskroll"
    if Path(sys.argv[0]).name == "deskroll":
        return sys.argv[0]
    beside = Path(sys.executable).parent / "deskroll"  # of an environment that is not activated
    return str(beside) if beside.exists() else f"{sys.executable} -m deskroll"


def run_command(command: click.Command) -> None:
    """Run a command as a program: errors are one message, and the process ends with the exit code."""
    sys.stdout, sys.stderr = lasting(sys.stdout), lasting(sys.stderr)
    try:
        code = command.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        code = 130
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        code = 130
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        click.echo(_shown(said.getvalue()), err=True)
        code = 2
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # There is no room left for what we print.
        sys.stderr.write(f"deskroll: cannot write: {error.strerror}\n")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  (what is left in the buffer has nowhere to go)
        code = 1
    except DeskrollError as error:
        click.echo(f"deskroll: {_shown(str(error))}", err=True)
        code = 2 if isinstance(error, (InputError, MissingDependency)) else 1
    sys.exit(code if isinstance(code, int) else 0)


def interrupted() -> click.exceptions.Exit:
    """What a command raises that was interrupted: that is said, and the code tells."""
    click.echo("interrupted", err=True)
    return click.exceptions.Exit(130)


def _shown(message: str) -> str:
    """A message without the orders to a terminal that a name in it may hold."""
    return plain(message, len(message), keep="\n\t")
