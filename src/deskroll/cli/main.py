"""`deskroll`: finds the command, and runs it.

Nothing heavy is imported here, so that `--help` answers at once.
"""

from __future__ import annotations

import importlib

import click

from deskroll.conduct.program import run_command

_COMMANDS = {
    "demo": ("deskroll.cli.demo:demo", "Four desktops side by side, each with a real program. No key needed."),
    "desktops": ("deskroll.cli.desktops:desktops", "Start desktops by hand, look at them, list them, reap leftovers."),
    "events": ("deskroll.cli.events:events", "What happens in a run, one line an event; --follow goes on with it."),
    "export": ("deskroll.cli.export:export", "A run in other programs' layouts: OSWorld's, Parquet, videos."),
    "envs": ("deskroll.cli.envs:envs", "Which environments there are, and the tools of each."),
    "models": ("deskroll.cli.models:models", "Ask a model one question; serve one with vLLM, or a scripted one."),
    "osworld": ("deskroll.cli.osworld:osworld", "OSWorld's own evaluators: install them, check them."),
    "plugins": ("deskroll.cli.plugins:plugins", "What can be chosen by name: built in and plug-ins, of every kind."),
    "pool": ("deskroll.cli.pool:pool", "Share desktops among programs: serve a pool, see it, steer it."),
    "replay": ("deskroll.cli.replay:replay", "Play an episode again on a fresh desktop; where do the screens differ?"),
    "report": ("deskroll.cli.report:report", "What a run came to: success, failures, time, cost; as a page, too."),
    "run": ("deskroll.cli.run:run", "Run an agent on tasks, in parallel, and score every attempt."),
    "runs": ("deskroll.cli.runs:runs", "Which runs there are: how each stands, how well it did, what it cost."),
    "serve": ("deskroll.cli.serve:serve", "The rollout service: runs batches of tasks as they come, until stopped."),
    "show": ("deskroll.cli.show:show", "One episode step by step, with the paths of its files."),
    "stats": ("deskroll.cli.report:stats", "Runs beside each other: each success rate, and how far they scatter."),
    "compare": ("deskroll.cli.report:compare", "Two runs task by task: better, worse, and whether that may be chance."),
    "status": ("deskroll.cli.status:status", "What a live run does, what is stuck, what limits."),
    "tasks": ("deskroll.cli.tasks:tasks", "List tasks, show one, see what they need and whether they can run here."),
    "train": ("deskroll.cli.train:train", "Train a model on tasks: baseline, steps, evaluations, under one limit."),
    "doctor": ("deskroll.cli.doctor:doctor", "What is there, what is missing, what to run."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used; listing them takes no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in sorted(_COMMANDS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deskroll", prog_name="deskroll")
def cli() -> None:
    """Run computer-use agents in parallel over a shared pool of real desktops.

    \b
    Start here:
      deskroll doctor      what this machine has and lacks
      deskroll demo        four real desktops at work on the bundled tasks
    """


def main() -> None:
    """Entry point of the `deskroll` program."""
    run_command(cli)
