"""`deskroll export`: a run in other programs' layouts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.numbers import RealRange
from deskroll.cli.options import json_option, print_json
from deskroll.errors import InputError, plain
from deskroll.host.home import expand_home

if TYPE_CHECKING:
    from deskroll.export import Chosen, Exported, Output
    from deskroll.export.episodes import Tell
    from deskroll.store import Run

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LINE_S = 10.0
"""Between lines where there is no terminal."""


@click.command(
    epilog="\b\nExamples:\n"
    "  deskroll export results/my-run --to osworld --output osworld-results\n"
    "  deskroll export results/my-run --to parquet --output tables --screens\n"
    "  deskroll export results/my-run --to verl --output verl --image-token 151655\n"
    "  deskroll export results/my-run --to video --output films --task note"
)
@click.argument("run")
@click.option("--to", required=True, type=click.Choice(["osworld", "parquet", "verl", "video"]), help="The layout.")
@click.option(
    "--output", required=True, metavar="DIR",
    help="The folder to write: an empty or new one, or that of the same export, broken off.",
)  # fmt: skip
@click.option("--task", "tasks", multiple=True, metavar="ID", help="Only this task. May be repeated.")
@click.option("--model-name", metavar="NAME", help="osworld: the model's folder. Default: the run's model.")
@click.option("--screens", is_flag=True, help="parquet: put the screens themselves into screens.parquet.")
@click.option(
    "--image-token", "image_tokens", multiple=True, type=int, metavar="ID",
    help="verl: the token id of which prompts hold a run for each picture. May be repeated.",
)  # fmt: skip
@click.option(
    "--seconds-a-step", nargs=2, type=RealRange(0.05, 3600), metavar="SHORTEST LONGEST",
    help="video: a screen is shown as long as its step took, within these. Default: 0.5 5.",
)  # fmt: skip
@click.option("--fps", type=RealRange(0.1, 20), help="video: so many screens a second, however long they stood.")
@click.option("--force", is_flag=True, help="Replace an earlier export in DIR, or write beside what is there.")
@json_option
def export(  # noqa: PLR0913  (one parameter an option)
    *,
    run: str,
    to: str,
    output: str,
    tasks: tuple[str, ...],
    model_name: str | None,
    screens: bool,
    image_tokens: tuple[int, ...],
    seconds_a_step: tuple[float, float] | None,
    fps: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the outcomes of RUN in another layout: OSWorld's result tree, Parquet tables, verl's, or videos.

    RUN is the folder of a run, finished or not. An export that was broken off goes on when the same command is given
    again. Exit code 0: all of it was written; 1: some episodes could not be read; 2: bad input.
    """
    from deskroll.export import Chosen, Output  # noqa: PLC0415
    from deskroll.export.output import Mark  # noqa: PLC0415
    from deskroll.store import Run, find_run  # noqa: PLC0415

    _check_options(
        to, model_name=model_name, screens=screens, image_token=image_tokens, seconds_a_step=seconds_a_step, fps=fps
    )
    opened = Run.open(find_run(run))
    for each in opened.damage:
        click.echo(plain(each, 500), err=True)
    folder = _folder(opened, output)
    chosen = Chosen.of(opened, tasks)
    options = {
        "task": " ".join(sorted(tasks)), "model-name": model_name or "", "screens": "yes" if screens else "",
        "seconds-a-step": "{:g} {:g}".format(*seconds_a_step) if seconds_a_step else "",
        "fps": f"{fps:g}" if fps else "", "image-token": " ".join(map(str, sorted(image_tokens))),
    }  # fmt: skip
    mark = Mark(run_id=opened.info.run_id, to=to, options={name: value for name, value in options.items() if value})
    if to == "verl":
        work = _verl_work(image_tokens)
    else:
        work = _work(to, opened, model_name, seconds_a_step, fps, screens=screens)
    with Output.open(folder, mark, force=force) as place, _progress() as tell:
        exported = work(chosen, place, tell)
    _tell(exported, as_json=as_json)
    raise click.exceptions.Exit(1 if exported.problems else 0)


def _check_options(to: str, **given: object) -> None:
    """An option of another layout would have no effect."""
    belongs = {
        "model_name": "osworld", "screens": "parquet", "image_token": "verl", "seconds_a_step": "video", "fps": "video",
    }  # fmt: skip
    for name, value in given.items():
        if value and belongs[name] != to:
            raise click.UsageError(f"--{name.replace('_', '-')} belongs to --to {belongs[name]}")
    if given["fps"] and given["seconds_a_step"]:
        raise click.UsageError("--fps and --seconds-a-step say the same thing in two ways: give one of them")
    bounds = given["seconds_a_step"]
    if isinstance(bounds, tuple) and bounds[0] > bounds[1]:
        raise click.UsageError(f"--seconds-a-step: {bounds[0]:g} is more than {bounds[1]:g}; the shortest comes first")


def _folder(run: Run, output: str) -> Path:
    """The folder that is meant, as it was given: a path would have lost a slash of `s3://`."""
    if _URL.match(output):
        raise InputError(f"{plain(output)}: an export is written to a folder of this machine")
    folder = Path(expand_home(output))
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{plain(output)} is a file; name a folder")
    if run.storage.local and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(run.root)):
        raise InputError(f"{plain(output)} is inside the run that is exported; name a folder elsewhere")
    return folder


def _work(
    to: str, run: Run, model_name: str | None, bounds: tuple[float, float] | None, fps: float | None, *, screens: bool
) -> Callable[[Chosen, Output, Tell], Exported]:
    """What writes that layout; whatever it needs is imported before anything is written."""
    if to == "parquet":
        from deskroll.export.tables import export_tables  # noqa: PLC0415

        return lambda chosen, place, tell: export_tables(chosen, place, tell, screens=screens)
    from deskroll.export import export_folders  # noqa: PLC0415

    if to == "video":
        from deskroll.export.films import FilmLayout, Pace  # noqa: PLC0415

        pace = Pace(1 / fps, 1 / fps) if fps else Pace(*bounds) if bounds else Pace()
        return lambda chosen, place, tell: export_folders(chosen, FilmLayout(pace), place, to, tell)
    from deskroll.envs.osworld.settings import OSWorldSettings  # noqa: PLC0415
    from deskroll.export.osworld import OSWorldLayout  # noqa: PLC0415

    config = run.info.config
    if config.get("env", "osworld") != "osworld":
        raise InputError(f"run {plain(run.root)} is of environment {plain(str(config['env']))}, and OSWorld's tree is "
                         "for tasks on desktops; use --to parquet")  # fmt: skip
    given = config.get("env_options") or {}
    space, seen = (str(given.get(name) or OSWorldSettings.model_fields[name].default)
                   for name in ("action_space", "observation_type"))  # fmt: skip
    layout = OSWorldLayout.of(run, space, seen, model_name or _model(run))
    return lambda chosen, place, tell: export_folders(chosen, layout, place, to, tell)


def _verl_work(image_tokens: tuple[int, ...]) -> Callable[[Chosen, Output, Tell], Exported]:
    from deskroll.train.verl_tables import export_verl  # noqa: PLC0415

    return lambda chosen, place, tell: export_verl(chosen, place, tell, image_token=image_tokens or None)


def _model(run: Run) -> str:
    """What the model's folder is called: no path of a script, and the agent where no model was asked."""
    config = run.info.config
    name = str((config.get("model") or {}).get("name") or "")
    if name.startswith("scripted:"):
        return "scripted"
    if not name or config.get("agent") in ("oracle", "noop", "random"):
        return str(config.get("agent") or "unknown")
    return name


@contextmanager
def _progress() -> Iterator[Tell]:
    """A bar on a terminal, elsewhere a line now and then."""
    from rich.progress import Progress  # noqa: PLC0415

    from deskroll.conduct.console import stderr  # noqa: PLC0415

    console = stderr()
    last = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("episodes")

        def tell(done: int, total: int) -> None:
            nonlocal last
            bar.update(task, completed=done, total=total)
            if not console.is_terminal and time.monotonic() - last >= _LINE_S:
                last = time.monotonic()
                console.print(f"{done}/{total} episodes", highlight=False)

        yield tell


def _tell(exported: Exported, *, as_json: bool) -> None:
    from deskroll.report.words import counted  # noqa: PLC0415

    if as_json:
        print_json(exported)
        return
    for problem in exported.problems:
        click.echo(f"left out: {plain(problem)}", err=True)
    parts = [
        f"{counted(exported.written, 'episode')} written",
        f"{exported.kept} there already" if exported.kept else "",
        f"{exported.empty} without {'a score' if exported.to == 'verl' else 'screens'}" if exported.empty else "",
        f"{len(exported.problems)} could not be read" if exported.problems else "",
    ]
    click.echo(f"{', '.join(filter(None, parts))}: {plain(exported.output, 4096)}")
