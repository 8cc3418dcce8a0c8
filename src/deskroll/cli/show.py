"""`deskroll show`: one episode in the terminal."""

from __future__ import annotations

import click

from deskroll.cli.completing import complete_run, complete_task
from deskroll.cli.numbers import WholeRange
from deskroll.cli.options import print_json
from deskroll.errors import plain


@click.command(
    epilog="\b\nExamples:\n"
    "  deskroll show results/my-run note\n"
    "  deskroll show results/my-run 'eval/0/note/0#1' --full\n"
    "  deskroll show results/my-run/episodes/eval/0/note/0/1 --json"
)
@click.argument("run", shell_complete=complete_run)
@click.argument("episode", default="", shell_complete=complete_task)
@click.option("--sample", type=WholeRange(0), help="Which of the task's samples. Default: 0.")
@click.option("--attempt", type=WholeRange(1), help="Which attempt. Default: the one that counts, or the last.")
@click.option("--full", is_flag=True, help="Show long texts whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def show(*, run: str, episode: str, sample: int | None, attempt: int | None, full: bool, as_json: bool) -> None:
    """Show one episode of RUN step by step: what was thought, done, answered and seen, and where its files are.

    EPISODE is a task's id, or its first characters, or a whole name such as eval/0/note/0#1: phase eval, round 0, task
    note, sample 0, attempt 1. RUN is the folder of a run (or one that holds runs: then the newest), or of an attempt.
    """
    from rich.text import Text  # noqa: PLC0415

    from deskroll.report import terminal  # noqa: PLC0415
    from deskroll.report.episode_lines import episode_lines, shown_attempt  # noqa: PLC0415
    from deskroll.report.results import Results  # noqa: PLC0415
    from deskroll.store import find_run  # noqa: PLC0415
    from deskroll.store.finding import attempt_at, find_attempt  # noqa: PLC0415

    if (found := attempt_at(run)) is not None:
        if episode or sample is not None or attempt is not None:
            raise click.UsageError("RUN is the folder of an attempt: EPISODE, --sample and --attempt go with a run")
        root, key, number = found
    else:
        root = find_run(run, newest=True)
        key, number = find_attempt(root, episode, sample, attempt, latest=True)
    results = Results.read(root)
    shown = shown_attempt(results, key, number)
    if as_json:
        print_json(shown, pretty=True)
        return
    console = terminal.console()
    console.print(episode_lines(shown, results, full=full))
    console.print(Text.assemble(("in         ", "dim"), plain(shown.folder, 4000)), soft_wrap=True)  # to be pasted
