"""`deskroll doctor`."""

from __future__ import annotations

import click
import msgspec

from deskroll.cli.options import json_option, print_json
from deskroll.conduct.program import program


@click.command(epilog="Example:  deskroll doctor --json | jq '.checks[] | select(.ok | not)'")
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Say what this machine has, what is missing, and what to run.

    Exits with 0 when embedded desktops can run here, else with 1.
    """
    from deskroll.desktops.providers.local.checks import run_checks  # noqa: PLC0415

    checks = run_checks()
    usable = all(check.ok for check in checks if check.required)
    if as_json:
        print_json({"usable": usable, "checks": [msgspec.to_builtins(check) for check in checks]})
    else:
        for check in checks:
            sign, colour = ("ok", "green") if check.ok else ("no", "red") if check.required else ("--", "yellow")
            click.echo(f"{click.style(sign, fg=colour)}  {check.name}: {check.found}")
            if not check.ok and check.fix:
                click.echo(f"      to do: {check.fix}")
        verdict = (
            "Embedded desktops can run here." if usable else "Embedded desktops cannot run here yet: see 'no' above."
        )
        click.echo(f"\n{verdict}" + (f"  Try: {program()} demo" if usable else ""))
    ctx.exit(0 if usable else 1)
