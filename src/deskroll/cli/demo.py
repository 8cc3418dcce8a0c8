"""`deskroll demo`: a real run from end to end, without any key: part of the bundled suite on four embedded desktops.

The oracle plays each task's reference solution by mouse and keyboard in real programs, the evaluators judge what is on
the desktop's disk afterwards, and a page shows all of it. So a demo that says `100%` has seen it, not assumed it.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.numbers import WholeRange
from deskroll.cli.places import LocalPath
from deskroll.errors import InputError

if TYPE_CHECKING:
    from deskroll.config import Override
    from deskroll.report.results import Results

PICTURED = ("editor", "calculator", "files", "terminal")
SIZE = (1280, 800)


@click.command(epilog="Example:  deskroll demo --output-dir demo-out")
@click.option(
    "--output-dir",
    default="demo-out",
    show_default=True,
    type=LocalPath(),
    help="For the run, its page and the picture.",
)
@click.option("--num-vms", default=4, show_default=True, type=WholeRange(1, 64), help="Desktops side by side.")
def demo(output_dir: Path, num_vms: int) -> None:
    """Run tasks of the bundled suite on desktops side by side, score them, and write a page about it.

    Needs no key, no VM and no container engine. The same by hand:  deskroll run suite:desk --agent oracle --num-vms 4.
    Exits with 1 when something did not come out as it should.
    """
    from deskroll.conduct.loops import run_for_command  # noqa: PLC0415
    from deskroll.conduct.run import conduct  # noqa: PLC0415
    from deskroll.report.html import write_html  # noqa: PLC0415
    from deskroll.rollout.loading import load_run  # noqa: PLC0415
    from deskroll.suites import small_tasks  # noqa: PLC0415

    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {output_dir}: {error.strerror}") from error
    config, tasks = load_run(None, _settings(output_dir, num_vms))
    small = small_tasks(tasks)
    click.echo(
        f"{len(small)} tasks of suite:desk on {num_vms} desktops; the oracle plays their reference solutions ..."
    )
    began = time.monotonic()
    ended = run_for_command(conduct(config, small))
    seconds = time.monotonic() - began
    ended.tell(as_json=False)
    page = output_dir / "report.html"
    write_html(ended.results, ended.results.summary(), page, None)
    picture = _contact_sheet(ended.results, output_dir / "desktops.png")
    right = sum(episode.score.value == 1.0 for episode in ended.results.outcomes)
    click.echo(f"\n{right} of {len(small)} tasks came out right in {seconds:.1f} s.")
    click.echo(f"The page about it, with every screen: {page}")
    click.echo(f"Four of the desktops:                 {picture}")
    raise click.exceptions.Exit(ended.code or int(right < len(small)))


def _settings(folder: Path, desktops: int) -> list[Override]:
    settings: dict[str, object] = {
        "tasks": "suite:desk",
        "agent": "oracle",
        "provider": "local",
        "num_vms": desktops,
        "num_rollouts": desktops,
        "env_options.screen_width": SIZE[0],
        "env_options.screen_height": SIZE[1],
        "output_dir": str(folder / "runs"),
    }
    return list(settings.items())


def _contact_sheet(results: Results, path: Path) -> Path:
    """The last screen that was seen of one task of each domain, in one picture at half size."""
    from PIL import Image  # noqa: PLC0415

    width, height, gap = SIZE[0] // 2, SIZE[1] // 2, 8
    sheet = Image.new("RGB", (2 * width + 3 * gap, 2 * height + 3 * gap), "white")
    for place, domain in enumerate(PICTURED):
        screen = _last_screen(results, domain)
        if screen is None:
            continue
        with Image.open(screen) as opened:
            small = opened.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        sheet.paste(small, (gap + place % 2 * (width + gap), gap + place // 2 * (height + gap)))
    sheet.save(path, optimize=True)
    return path


def _last_screen(results: Results, domain: str) -> io.BytesIO | None:
    """Of the domain's longest solution that came out right: most is to be seen there."""
    right = [each for each in results.outcomes if each.domain == domain and each.score.value == 1.0]
    for episode in sorted(right, key=lambda each: each.steps, reverse=True):
        attempt = results.run.attempt(episode.key, episode.attempt)
        screens = [step.screen for step in attempt.steps() if step.screen]
        if screens:
            return io.BytesIO(attempt.image(screens[-1]))
    return None
