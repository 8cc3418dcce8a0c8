"""`deskroll run`: tasks in, outcomes out. Reads settings, opens the session, shows progress, ends in good order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.completing import complete_part, complete_run
from deskroll.cli.places import LocalPath
from deskroll.cli.setting_flags import SettingFlag, setting_flags
from deskroll.cli.setting_flags import overrides as overrides_of
from deskroll.rollout.config import RunConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = (
    SettingFlag("env", complete=complete_part("env")),
    SettingFlag("agent", complete=complete_part("agent")),
    SettingFlag("model.name", "--model"),
    SettingFlag("model.base_url", metavar="URL"),
    SettingFlag("num_rollouts"),
    SettingFlag("max_concurrent_rollouts"),
    SettingFlag("num_vms"),
    SettingFlag("provider", complete=complete_part("provider")),
    SettingFlag("group_size"),
    SettingFlag("limits.max_turns"),
    SettingFlag("output_dir"),
    SettingFlag("run_id", metavar="NAME"),
    SettingFlag("only.domains", "--domain"),
    SettingFlag("only.ids", "--task", metavar="ID"),
    SettingFlag("only.apps", "--app"),
    SettingFlag("limit"),
)
"""Settings that have a flag of their own; all others: --set."""


@click.command(
    epilog="\b\nExamples:\n"
    "  deskroll run tasks.jsonl --env math --model gpt-4.1 --num-rollouts 16\n"
    "  deskroll run tasks.jsonl --num-vms 4 --set limits.max_turns=10\n"
    "  deskroll run tasks.jsonl --agent my_agent.py:MyAgent --run-id first-try\n"
    "  deskroll run --resume results/20260131-120000"
)
@click.argument("tasks", required=False)
@click.option("--config", "config_file", type=LocalPath(), help="Settings, as YAML or TOML.")
@setting_flags(RunConfig, FLAGS)
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Any other setting. May be repeated.")
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=complete_run,
    help="Go on with a run: do what has no outcome, or no score.",
)
@click.option("--force", is_flag=True, help="Resume although the tasks or the settings have changed.")
@click.option("--dry-run", is_flag=True, help="Show the plan, the sizes and the expected time; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary (or the plan) as JSON on standard output.")
def run(
    *,
    tasks: str | None,
    config_file: Path | None,
    overrides: Sequence[str],
    resume: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **flags: str | int | tuple[str, ...] | None,
) -> None:
    """Run an agent on tasks, in parallel, and score every attempt.

    TASKS is a JSON or JSONL file, a suite file or a folder of OSWorld's tasks, or suite:NAME. Ctrl-C once: what has
    begun is finished, the rest is left. Twice: stop now. Either way no desktop is left, and --resume goes on. Exit code
    0: every episode was scored; 1: some were not; 2: bad input; 130: interrupted.
    """
    from deskroll.cli.run_plan import show_plan  # noqa: PLC0415
    from deskroll.conduct.console import stderr  # noqa: PLC0415
    from deskroll.conduct.log_lines import LogLines  # noqa: PLC0415
    from deskroll.conduct.loops import run_for_command  # noqa: PLC0415
    from deskroll.conduct.run import conduct  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415
    from deskroll.rollout.loading import load_run, resume_run  # noqa: PLC0415

    if any("api_key" in each for each in overrides):
        raise click.UsageError("--set api_key: other users see command lines; set OPENAI_API_KEY instead, or use .env")
    load_env(Path.cwd())
    given = overrides_of(FLAGS, flags)
    if tasks is not None:
        given.append(("tasks", tasks, "TASKS"))
    if flags["run_id"] == "":
        raise click.UsageError("--run-id is empty: give a name, or leave it out, and the run is called by the time")
    if resume is not None:
        if config_file is not None:
            raise click.UsageError("--resume goes on with the run's own settings; change single ones with --set")
        if flags["run_id"] is not None:
            raise click.UsageError("--run-id names a new run; a resumed one keeps its name")
        with LogLines(stderr()):
            root, config, loaded = resume_run(resume, [*given, *overrides])
    else:
        if force:
            raise click.UsageError("--force belongs to --resume")
        with LogLines(stderr()):
            root, (config, loaded) = "", load_run(config_file, [*given, *overrides])
    if dry_run:
        show_plan(config, loaded, root, as_json=as_json)
        return
    ended = run_for_command(conduct(config, loaded, root, force=force))
    ended.tell(as_json=as_json)
    raise click.exceptions.Exit(ended.code)
