"""One page of a run: no network, safe whatever tasks, models and desktops said.

It stands for itself, and where it lies on the machine of its run it also shows and links the run's own files. Three
fences: Jinja escapes all text (autoescape); data for scripts lies in JSON blocks in which `<`, `>` and `&` are escapes,
and reaches the document through `textContent` alone; a Content-Security-Policy forbids every request but for pictures
and films from where the page itself lies, and every script and style but our own, which it names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from deskroll import __version__
from deskroll.errors import plain
from deskroll.report import page, words
from deskroll.report.charts import charts
from deskroll.report.episode_view import Viewer
from deskroll.report.results import Results
from deskroll.report.rows import write_text
from deskroll.report.screens import Screens
from deskroll.report.summary import Summary
from deskroll.report.train_terminal import in_words
from deskroll.store.training import TRAIN

ALL_UP_TO = 50
"""With more episodes than this, the page holds only the last screen of each unless more are asked for, and links what
was said instead of holding it."""

_LONGEST = 100_000


def write_html(results: Results, summary: Summary, path: Path, screens: Screens | None = None) -> None:
    """Write the page; `screens` says which ones it shows (none given: it depends on the number of episodes)."""
    write_text(path, render(results, summary, screens, path.parent), "the page ")


def render(results: Results, summary: Summary, screens: Screens | None = None, beside: Path | None = None) -> str:
    """The page as text; `beside` is the folder that it will lie in, none where its links would lead nowhere."""
    few = len(results.outcomes) <= ALL_UP_TO
    if screens is None:
        screens = Screens.SMALL if few else Screens.LAST
    episodes = page.chosen(results)
    viewer = Viewer(results, screens, beside, talk=few)
    views = [_json(viewer.view(episode)) for episode in episodes]
    style, library, script = _static("report.css"), _static("chart.umd.js"), _static("report.js")
    return _environment().get_template("report.html.j2").render(
        results=results,
        summary=summary,
        state=_state(summary),
        facts=page.facts(results),
        config=page.config(results),
        rows=[page.row(number, episode, results) for number, episode in enumerate(episodes)],
        views=views,
        charts=_json(charts(summary, results.outcomes, results.changes, results.starts)),
        screens=screens.value,
        screens_left_out=viewer.pictures.left_out,
        policy=_policy(style, [library, script]),
        style=Markup(style),  # noqa: S704  (our own file)
        library=Markup(library),  # noqa: S704  (our own file)
        script=Markup(script),  # noqa: S704  (our own file)
        version=__version__,
        now=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        words=words,
        how_far=in_words(summary.training) if summary.training else "",
        shown_phases=[each for each in summary.phases if summary.training is None or each.name == TRAIN],
    )  # fmt: skip


def _state(summary: Summary) -> str:
    """The colour of the run's state: green where all of it is done and scored, red where nothing came of it."""
    if summary.finished and not summary.done:
        return "broken"
    return "done" if summary.finished and not summary.overall.unscored else "open"


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("deskroll.report"),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: object) -> object:
    """Whatever text is put into the page, without control characters; Jinja escapes it after that."""
    return plain(value, _LONGEST, keep="\n\t") if type(value) is str else value


def _static(name: str) -> str:
    """A script or style as it stands between its tags; without the hint at a map that nobody has."""
    text = resources.files("deskroll.report").joinpath("static", name).read_text(encoding="utf-8")
    return re.sub(r"\n//# sourceMappingURL=\S*\s*$", "\n", text.replace("\r\n", "\n"))


def _policy(style: str, scripts: list[str]) -> str:
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; img-src data: 'self' file:; "
        "media-src 'self' file:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _json(record: msgspec.Struct) -> Markup:
    """The record for a JSON block: nothing in it can end the block or begin another."""
    text = msgspec.json.encode(record).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704  (what could be read as HTML was just replaced)
