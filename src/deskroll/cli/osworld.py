"""`deskroll osworld`: makes and checks the environment of OSWorld's own evaluators."""

from __future__ import annotations

import json
import time

import click

from deskroll.errors import MissingDependency


@click.group(epilog="\b\nExample:\n  deskroll osworld install")
def osworld() -> None:
    """OSWorld's own getters and metrics, in an environment of their own."""


@osworld.command(epilog="\b\nExample:\n  deskroll osworld install")
@click.option("--json", "as_json", is_flag=True, help="One object at the end, nothing else.")
def install(as_json: bool) -> None:
    """Make the environment (about 1.5 GB), or finish one that was broken off."""
    from deskroll.envs.osworld.evaluate.upstream.install import install as make  # noqa: PLC0415

    begun = time.monotonic()
    count = 0

    def tell(line: str) -> None:
        nonlocal count
        count += line.startswith(("Collecting", "Requirement"))
        if not as_json:
            click.echo(f"{time.monotonic() - begun:5.0f} s  {count:3d}  {line}")

    done = make(tell)
    if as_json:
        shown = {"folder": done.folder, "packages": done.packages, "fresh": done.fresh}
        click.echo(json.dumps({**shown, "seconds": round(time.monotonic() - begun, 1)}))
        return
    click.echo(f"{done.packages} packages in {done.folder}" + ("" if done.fresh else "; nothing had to be done"))


@osworld.command(epilog="\b\nExample:\n  deskroll osworld check --json")
@click.option("--json", "as_json", is_flag=True, help="One object.")
def check(as_json: bool) -> None:
    """Say whether the environment is there and its code can be imported."""
    from deskroll.envs.osworld.evaluate.upstream.install import check_imports  # noqa: PLC0415
    from deskroll.envs.osworld.evaluate.upstream.names import VERSION  # noqa: PLC0415
    from deskroll.envs.osworld.evaluate.upstream.place import environment_folder, find_environment  # noqa: PLC0415

    folder = find_environment()
    if folder is None:
        if as_json:
            click.echo(json.dumps({"installed": False, "folder": str(environment_folder())}))
        raise MissingDependency(f"nothing whole is in {environment_folder()}; run: deskroll osworld install")
    check_imports(folder)
    if as_json:
        click.echo(json.dumps({"installed": True, "folder": str(folder), "version": VERSION}))
        return
    click.echo(f"OSWorld's evaluators {VERSION} are installed in {folder}")
