"""`deskroll report`, `deskroll stats` and `deskroll compare`: what runs came to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.completing import complete_run
from deskroll.cli.options import json_option, print_json
from deskroll.cli.places import LocalPath
from deskroll.errors import InputError, plain
from deskroll.host.home import expand_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deskroll.report.results import Results
    from deskroll.report.summary import Summary

_FILE = LocalPath(dir_okay=False)
_TABLES = ("csv_file", "train_file")
"""What may go to standard output."""
_FLAGS = {"csv_file": "--csv", "html_file": "--html", "train_file": "--train-csv", "png_file": "--png"}


@click.command(
    epilog="\b\nExamples:\n  deskroll report results\n"
    "  deskroll report results/my-run --html report.html --csv episodes.csv\n"
    "  deskroll report results/my-training --png curves.png --train-csv curves.csv"
)
@click.argument("run", shell_complete=complete_run)
@json_option
@click.option(
    "--csv", "csv_file", type=_FILE,
    help="Write one row an episode to this file; -: to standard output, and nothing else there.",
)  # fmt: skip
@click.option("--html", "html_file", type=_FILE, help="Write a page with plots, every episode and its screens.")
@click.option(
    "--screens", type=click.Choice(["full", "small", "last", "none"]),
    help="Which screens the page holds: all as they are, all made small, the last of each episode, or none; it links "
    "the run's own in any case. Default: small; with more than 50 episodes, last.",
)  # fmt: skip
@click.option(
    "--train-csv", "train_file", type=_FILE,
    help="Of a training run: write one row a step and one an evaluation; -: to standard output, and nothing else.",
)  # fmt: skip
@click.option("--png", "png_file", type=_FILE, help="Of a training run: write a picture of its curves.")
def report(run: str, as_json: bool, screens: str | None, **files: Path | None) -> None:
    """Say what RUN came to: success over attempted and over scored, failures, time and cost.

    RUN is the folder of a run, finished or not, or the folder that runs are kept in: then it is the newest one in it.
    Of a training run: its baseline, its evaluations and its steps. --json prints what summary.json holds.
    """
    from deskroll.report import terminal  # noqa: PLC0415
    from deskroll.report.results import Results  # noqa: PLC0415

    told = _told(as_json, files)
    if screens is not None and files["html_file"] is None:
        raise InputError("--screens is about the page: give --html FILE as well")
    results = Results.read(run, newest=True)
    _tell_which(run, results)
    summary = results.summary()
    made = _write(results, summary, files, screens)
    if told:
        click.echo(made[told], nl=False)
        return
    if as_json:
        print_json(summary)
        return
    console = terminal.console()
    console.print(terminal.report(results.name, results.state, summary, console.width))
    for name in _FLAGS:
        if files[name] is not None:
            click.echo(f"wrote {plain(str(files[name]), 4096)}")


def _told(as_json: bool, files: Mapping[str, Path | None]) -> str:
    """Which file is standard output; empty: none."""
    told = [name for name in _FLAGS if str(files[name]) == "-"]
    flags = ["--json"] * as_json + [f"{_FLAGS[name]} -" for name in told]
    if len(flags) > 1:
        raise InputError(
            f"{flags[0]} and {flags[1]} both write to standard output: give one of them a file, or leave it out"
        )
    if wrong := [name for name in told if name not in _TABLES]:
        raise InputError(f"{_FLAGS[wrong[0]]} needs a file, not standard output")
    return told[0] if told else ""


def _write(results: Results, summary: Summary, files: Mapping[str, Path | None], screens: str | None) -> dict[str, str]:
    """Write what is asked for; what goes to standard output is returned, by its parameter."""
    from deskroll.report.rows import episodes_csv, write_text  # noqa: PLC0415
    from deskroll.report.train_rows import training_csv  # noqa: PLC0415

    wanted = {name: path for name, path in files.items() if path is not None}
    made = {}
    if "csv_file" in wanted:
        made["csv_file"] = episodes_csv(results)
    for name in sorted({"train_file", "png_file"} & set(wanted)):
        if summary.training is None:
            raise InputError(f"{plain(results.run.root)} is no training run, and {_FLAGS[name]} is about those")
        if name == "train_file":
            made[name] = training_csv(summary.training)
        else:
            from deskroll.report.curves import curves  # noqa: PLC0415
            from deskroll.report.picture import write_picture  # noqa: PLC0415
            from deskroll.report.train_terminal import in_words  # noqa: PLC0415

            write_picture(curves(summary.training), f"{results.name} · {in_words(summary.training)}", wanted[name])
    for name, text in made.items():
        if str(wanted[name]) != "-":
            write_text(wanted[name], text)
    if "html_file" in wanted:
        from deskroll.report.html import write_html  # noqa: PLC0415
        from deskroll.report.screens import Screens  # noqa: PLC0415

        write_html(results, summary, wanted["html_file"], Screens(screens) if screens else None)
    return made


@click.command(epilog="\b\nExample:\n  deskroll stats results/repeat-*")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@json_option
def stats(runs: tuple[str, ...], as_json: bool) -> None:
    """Put runs beside each other: each success rate, all together, and how far they scatter.

    Meant for repeats of one experiment: more scatter than chance explains means that something else differs.
    """
    from deskroll.report import repeats, terminal  # noqa: PLC0415
    from deskroll.report.results import Results  # noqa: PLC0415

    read = [Results.read(run) for run in runs]
    names = _names(read, runs)
    found = repeats({name: (each.planned, each.outcomes) for name, each in zip(names, read, strict=True)})
    if as_json:
        print_json(found)
    else:
        console = terminal.console()
        console.print(terminal.repeated(found, console.width))


@click.command(epilog="\b\nExample:\n  deskroll compare results/old-model results/new-model --out differing.csv")
@click.argument("a", shell_complete=complete_run)
@click.argument("b", shell_complete=complete_run)
@json_option
@click.option(
    "--out", default=None, metavar="FILE",
    help="Where to save the differing tasks: .json or .csv; - for nowhere. Default: compare_A_B.json here.",
)  # fmt: skip
def compare(a: str, b: str, as_json: bool, out: str | None) -> None:
    """Compare run B with run A, task by task: what is better, what is worse, whether that may be chance.

    The tasks that differ are saved in the working directory, too, as compare_A_B.json: --out names another file.
    """
    from deskroll.report import compare as compare_runs  # noqa: PLC0415
    from deskroll.report import terminal  # noqa: PLC0415
    from deskroll.report.results import Results  # noqa: PLC0415
    from deskroll.report.rows import changes_file, write_text  # noqa: PLC0415

    read = [Results.read(a), Results.read(b)]
    names = _names(read, (a, b))
    plans = read[0].tasks(), read[1].tasks()
    found = compare_runs(read[0].outcomes, read[1].outcomes, (names[0], names[1]), plans)
    path = None
    if out != "-":
        path = Path(expand_home(out)) if out else Path(f"compare_{_file_name(names[0])}_{_file_name(names[1])}.json")
        write_text(path, changes_file(found, path))
    if as_json:
        print_json(found)
        return
    console = terminal.console()
    console.print(terminal.compared(found, console.width))
    if path is not None:
        click.echo(f"\nwrote {plain(str(path), 4096)}")


def _tell_which(named: str, results: Results) -> None:
    """Where the folder that was named holds runs, say which of them it is about."""
    from deskroll.store import Storage  # noqa: PLC0415

    root = results.run.root
    if Storage.at(named.removesuffix("run.json")).root.rstrip("/") != root.rstrip("/"):
        click.echo(f"the newest run in {plain(named)}: {plain(root)}", err=True)


def _names(results: list[Results], paths: tuple[str, ...]) -> list[str]:
    """What to call runs: by their ids, or by their paths where two have the same id."""
    names = [each.name for each in results]
    if len(set(names)) == len(names):
        return names
    if len(set(paths)) < len(paths):
        raise InputError("the same run is named twice")
    return list(paths)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "run"
