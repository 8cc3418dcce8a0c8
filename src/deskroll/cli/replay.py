"""`deskroll replay`: plays an episode's actions on a fresh desktop and says where the screens differ."""

from __future__ import annotations

from pathlib import Path

import click

from deskroll.cli.numbers import RealRange, WholeRange
from deskroll.cli.options import json_option
from deskroll.cli.places import LocalPath
from deskroll.errors import InputError, plain


@click.command(
    epilog="\b\nExamples:\n"
    "  deskroll replay results/my-run --task note --score\n"
    "  deskroll replay results/my-run/episodes/eval/0/note/0/1 --output differences"
)
@click.argument("episode")
@click.option("--task", default="", metavar="ID", help="Where EPISODE is a run: which task.")
@click.option("--sample", type=WholeRange(0), help="Which of its samples. Default: 0.")
@click.option("--attempt", type=WholeRange(1), help="Which attempt. Default: the one that counts.")
@click.option(
    "--tolerance", type=RealRange(0.0, 1.0), default=0.001, show_default=True,
    help="The share of a screen that may differ: carets blink, clocks go on.",
)  # fmt: skip
@click.option("--score", is_flag=True, help="Judge the replay, too, and compare the scores.")
@click.option(
    "--output", type=LocalPath(file_okay=False), metavar="DIR",
    help="Write a picture of each difference there, both screens side by side.",
)  # fmt: skip
@click.option("--provider", help="What kind of desktop. Default: the run's.")
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Another setting of the run. May be repeated.")
@click.option("--force", is_flag=True, help="Replay although the task has changed since.")
@json_option
def replay(  # noqa: PLR0913  (one parameter an option)
    *,
    episode: str,
    task: str,
    sample: int | None,
    attempt: int | None,
    tolerance: float,
    score: bool,
    output: Path | None,
    provider: str | None,
    overrides: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Play EPISODE again on a fresh desktop, and say where the screens differ.

    EPISODE is the folder of an attempt, or a run with --task (and --sample, --attempt). The desktop is one of the run's
    own kind, the task is set up as it was, and the stored actions are performed turn by turn; no model is asked. Exit
    code 0: the same; 1: something differs; 2: bad input; 130: interrupted before its end.
    """
    from deskroll.cli.replay_session import conduct, tell  # noqa: PLC0415
    from deskroll.conduct.loops import run_for_command  # noqa: PLC0415
    from deskroll.conduct.program import interrupted  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415
    from deskroll.rollout.replay import Source  # noqa: PLC0415
    from deskroll.store import find_run  # noqa: PLC0415
    from deskroll.store.finding import attempt_at, find_attempt  # noqa: PLC0415

    load_env(Path.cwd())
    found = attempt_at(episode)
    if found is not None:
        if task or sample is not None or attempt is not None:
            raise click.UsageError("EPISODE is the folder of an attempt: --task, --sample and --attempt go with a run")
        root, key, number = found
    else:
        root = find_run(episode)
        key, number = find_attempt(root, task, sample, attempt)
    given = (*overrides, *((("provider", provider, "--provider"),) if provider else ()))
    source = Source.find(root, key, number, given, force=force)
    if not score and not source.has_screens:
        raise InputError(
            f"{source.name}: no screen of it was stored, so there is nothing to compare; --score compares the score"
        )
    if output is not None and output.exists() and any(output.iterdir()):
        raise InputError(f"{plain(str(output))} is not empty; choose another folder for the pictures")
    compared = run_for_command(conduct(source, tolerance, output, score=score))
    if compared is None:
        raise interrupted()
    tell(compared, output, score=score, as_json=as_json)
    raise click.exceptions.Exit(0 if compared.same else 1)
