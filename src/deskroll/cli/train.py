"""`deskroll train`: reads the settings of a training run, shows what would be done, or does it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskroll.cli.completing import complete_part, complete_run
from deskroll.cli.places import LocalPath
from deskroll.cli.setting_flags import SettingFlag, setting_flags
from deskroll.cli.setting_flags import overrides as overrides_of
from deskroll.train.config import CLIConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deskroll.config import Override

_BY_SET = ("agent_options", "env_options", "trainer_options", "models", "run")
"""Fields that hold others: --set."""
_SOURCES = ("tasks", "eval_tasks")
_NAMED = {
    "env": complete_part("env"),
    "agent": complete_part("agent"),
    "provider": complete_part("provider"),
    "trainer": complete_part("trainer"),
}
FLAGS = tuple(
    SettingFlag(name, metavar="JSON" if name in _SOURCES else None, complete=_NAMED.get(name))
    for name in CLIConfig.model_fields
    if name not in _BY_SET
)
"""Every field but for those that hold others."""


@click.command(
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    epilog="\b\nExamples:\n"
    "  deskroll train --model-name my-model --set models.ckpt_path=models/my-model --steps 50 --dry-run\n"
    '  deskroll train train.yaml --max-concurrent-rollouts 5 --eval-tasks \'{"source_type": "demo_eval"}\'\n'
    "  deskroll train --resume results/20260131-120000",
)
@click.argument("config_file", metavar="[CONFIG]", required=False, type=LocalPath())
@setting_flags(CLIConfig, FLAGS)
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Any other setting. May be repeated.")
@click.option("--resume", metavar="RUN", shell_complete=complete_run, help="Go on with a training run where it was.")
@click.option("--dry-run", is_flag=True, help="Show phases, sizes and what will limit; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary (or the plan) as JSON on standard output.")
def train(
    *,
    config_file: Path | None,
    overrides: Sequence[str],
    resume: str | None,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Train a model on tasks: baseline, steps, evaluations, under one limit on what runs at a time.

    CONFIG is a file of settings, YAML or TOML (docs/train-settings.md). Flags may be written with dashes or
    underscores. $DESKROLL_TRAIN_CONFIG names a file whose settings count where neither CONFIG nor a flag sets them.
    """
    from deskroll.conduct.console import stderr  # noqa: PLC0415
    from deskroll.conduct.log_lines import LogLines  # noqa: PLC0415
    from deskroll.conduct.loops import run_for_command  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415
    from deskroll.train.conducting import train as train_prepared  # noqa: PLC0415
    from deskroll.train.preparing import prepare  # noqa: PLC0415

    if any("api_key" in each for each in overrides):
        raise click.UsageError("--set api_key: other users see command lines; set OPENAI_API_KEY instead, or use .env")
    load_env(Path.cwd())
    given = [*_read_sources(overrides_of(FLAGS, flags)), *overrides]
    with LogLines(stderr()):
        folder, config = _settings(config_file, given, resume)
        prepared = prepare(config, os.environ, folder=folder)
    if dry_run:
        from deskroll.cli.train_plan import show_plan  # noqa: PLC0415

        show_plan(prepared, as_json=as_json)
        return
    ended = run_for_command(train_prepared(prepared))
    ended.tell(as_json=as_json)
    raise click.exceptions.Exit(ended.code)


def _settings(config_file: Path | None, given: list[Override], resume: str | None) -> tuple[str, CLIConfig]:
    """The folder of the run that goes on (or nothing), and the settings."""
    from deskroll.config import load  # noqa: PLC0415
    from deskroll.train.folder import kept_settings  # noqa: PLC0415
    from deskroll.train.start import with_defaults  # noqa: PLC0415

    if resume is None:
        return "", with_defaults(load(CLIConfig, config_file, given), os.environ)
    if config_file is not None:
        raise click.UsageError("--resume goes on with the run's own settings; change single ones with flags or --set")
    if any(isinstance(each, tuple) and each[0] == "log_path" for each in given):
        raise click.UsageError("--log-path names the run's folder, and so does --resume; leave one of them out")
    return kept_settings(resume, given)


def _read_sources(given: list[Override]) -> list[Override]:
    """The flags, with the JSON of sources read: what is wrong in it is told by its field."""
    from deskroll.tasks.sources import read_sources  # noqa: PLC0415

    return [
        (each[0], read_sources(each[1], each[2]), each[2])
        if isinstance(each, tuple) and len(each) == 3 and each[0] in _SOURCES
        else each
        for each in given
    ]
