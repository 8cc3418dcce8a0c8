"""The curves of a training run as a PNG: score, lag, time by part, who was busy.

Matplotlib is imported here and nowhere else: the extra `plot`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from deskroll.errors import InputError, MissingDependency, plain
from deskroll.report.curves import PARTS, Curves
from deskroll.store.training import BASELINE, EVAL, TRAIN

try:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise MissingDependency("--png needs Matplotlib; run:  pip install 'deskroll[plot]'") from None

_BLUE, _ORANGE, _GREEN, _GREY, _RED, _PURPLE = "#2f6fb7", "#d9822b", "#3a8f5c", "#8a94a3", "#c4493d", "#7a5bb0"
_PART_COLOURS = dict(zip(PARTS, (_BLUE, _RED, _ORANGE, _PURPLE, _GREY), strict=True))
_PART_NAMES = {
    "generate": "wait for groups", "hold": "wait for evaluation", "train": "train", "save": "save",
    "refresh": "refresh",
}  # fmt: skip
_PHASE_COLOURS = {TRAIN: _BLUE, EVAL: _GREEN, BASELINE: _GREY}


def write_picture(curves: Curves, title: str, path: Path) -> None:
    """Write the picture."""
    figure = Figure(figsize=(12, 7.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(plain(title, 125), fontsize=11, fontweight="bold", x=0.01, ha="left", parse_math=False)
    (score, lag), (time, busy) = figure.subplots(2, 2)
    _draw_scores(score, curves)
    _draw_lag(lag, curves)
    _draw_time(time, curves)
    _draw_busy(busy, curves)
    for axes in (score, lag, time, busy):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e3e6ea", linewidth=0.8)
        axes.set_axisbelow(True)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; give another file") from error


def _draw_scores(axes: Axes, curves: Curves) -> None:
    _title(axes, "Score", "step")
    if curves.steps:
        alone = curves.over == 1
        axes.plot(curves.steps, curves.reward, color=_BLUE, linewidth=1, alpha=1 if alone else 0.3,
                  label="training reward" if alone else None)  # fmt: skip
        if not alone:
            axes.plot(curves.steps, curves.smooth, color=_BLUE, linewidth=2,
                      label=f"training reward, mean of {curves.over} steps")  # fmt: skip
    for phase, mark, name in ((BASELINE, "D", "baseline"), (EVAL, "o", "evaluation")):
        points = [each for each in curves.evaluations if each.phase == phase]
        if not points:
            continue
        below = [each.score - (each.score if each.low is None else each.low) for each in points]
        above = [(each.score if each.high is None else each.high) - each.score for each in points]
        axes.errorbar(
            [each.step for each in points], [each.score for each in points], yerr=[below, above], fmt=f"{mark}-",
            color=_PHASE_COLOURS[phase], capsize=3, markersize=5, linewidth=1.5, label=f"{name}, 95% interval",
        )  # fmt: skip
    values = [*curves.reward, *(each.score for each in curves.evaluations)]
    if values and min(values) >= 0 and max(values) <= 1:
        axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes, columns=2)


def _draw_lag(axes: Axes, curves: Curves) -> None:
    _title(axes, "Lag, in steps", curves.unit)
    axes.plot(curves.taken, curves.lag_max, color=_GREY, linewidth=1, marker="_", label="most")
    axes.plot(curves.taken, curves.lag, color=_BLUE, linewidth=1.2, marker=".", markersize=4, label="median")
    axes.set_ylim(bottom=-0.05, top=max([*curves.lag_max, 1]) * 1.15)
    axes.set_xlim(0, curves.edges[-1] or 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)


def _draw_time(axes: Axes, curves: Curves) -> None:
    _title(axes, "Time of each step, in seconds", "step")
    if curves.steps:
        edges = [each - 0.5 for each in (*curves.steps, curves.steps[-1] + 1)]
        shown = {_PART_NAMES[part]: curves.seconds[part] for part in PARTS if any(curves.seconds[part])}
        _stack(axes, shown, edges, {_PART_NAMES[part]: colour for part, colour in _PART_COLOURS.items()})
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axes)


def _draw_busy(axes: Axes, curves: Curves) -> None:
    _title(axes, "Who is busy", curves.unit)
    names = sorted(curves.episodes, key=lambda name: (name != TRAIN, name != EVAL, name))
    shown = {f"episodes of {name}": curves.episodes[name] for name in names if any(curves.episodes[name])}
    _stack(axes, shown, curves.edges, {f"episodes of {name}": colour for name, colour in _PHASE_COLOURS.items()}, 0.55)
    axes.set_ylabel("episodes in flight", color="#56606d")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, curves.edges[-1] or 1)
    share = axes.twinx()
    middles = [(start + end) / 2 for start, end in itertools.pairwise(curves.edges)]
    share.plot(middles, [100 * each for each in curves.trainer], color=_ORANGE, linewidth=1.3, label="trainer, %")
    if curves.desktops:
        shares = [float("nan") if each is None else 100 * each for each in curves.desktops]
        share.plot(middles, shares, color=_RED, linewidth=1.3, label="desktops leased, %")
    share.set_ylim(0, 103)
    share.set_ylabel("% of the time", color="#56606d")
    share.spines[["top"]].set_visible(False)
    lines, labels = share.get_legend_handles_labels()
    _legend(axes, lines, labels)


def _stack(
    axes: Axes, parts: Mapping[str, Sequence[float]], edges: Sequence[float], colours: Mapping[str, str],
    alpha: float = 1.0,
) -> None:  # fmt: skip
    """Parts on top of each other."""
    below = [0.0] * (len(edges) - 1)
    for name, values in parts.items():
        above = [one + other for one, other in zip(below, values, strict=True)]
        axes.stairs(
            above, edges, baseline=below, fill=True, label=name, color=colours.get(name, _PURPLE), alpha=alpha,
            linewidth=0,
        )  # fmt: skip
        below = above


def _title(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(below, color="#56606d")


def _legend(axes: Axes, lines: Sequence[Artist] = (), labels: Sequence[str] = (), columns: int = 3) -> None:
    handles, names = axes.get_legend_handles_labels()
    handles, names = [*handles, *lines], [*names, *labels]
    if handles:
        axes.legend(
            handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, frameon=False, fontsize=9
        )
