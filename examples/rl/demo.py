"""From nothing to a curve: makes the model and the tasks, trains, and plays real windows before and after.

    python demo.py --seed 1 --out DIR

Every part is a command that it prints before it runs it, so that each can be run by itself. Started again on the same
folder it goes on where it was. Needs what `make rl-demo` installs: vLLM and torch (`make vllm`), yad for the windows.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import deskroll
from deskroll.train.log import EvalRecord, StepRecord, TrainLog

HERE = Path(__file__).resolve().parent
TORCH = HERE.parents[1] / ".venv-vllm" / "bin" / "python"
DESKROLL = [sys.executable, "-m", "deskroll"]
WINDOWS = 64


class Figures(msgspec.Struct):
    """What came of one seed; shares of right presses."""

    seed: int
    baseline: float
    after: float
    """The same 128 tables of unseen names, after the last step."""
    tables_before: float
    """The first of them (64, unless --windows says otherwise) ..."""
    tables_after: float
    windows_before: float | None
    """... and the same as real windows."""
    windows_after: float | None
    steps: int
    refreshes: int
    largest_gap: float
    """Of log-probabilities, between server and trainer; the mean of a step, the largest of all steps."""
    minutes: float
    """Of `deskroll train`, all starts of it together, with the start of the server."""
    episodes: int
    episodes_a_second: float
    """While it trained, evaluations included."""
    tokens_a_second: float
    """Prompts and replies of training, over the same time."""


def main() -> None:
    """All parts in their order."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--seed", type=int, default=1)
    read.add_argument("--out", type=Path, default=Path("results/rl-demo"))
    read.add_argument("--windows", type=int, default=WINDOWS, help="real windows to play before and after; 0: none")
    read.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of train.yaml")
    given = read.parse_args()
    out = (given.out / f"seed{given.seed}").absolute()
    out.mkdir(parents=True, exist_ok=True)
    prepare(out, given.seed)
    train(out, given.seed, given.set)
    shares = play_windows(out, given.windows) if given.windows else (None, None)
    made = figures(out, given.seed, given.windows, *shares)
    (out / "figures.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)))
    call([*DESKROLL, "report", "run"], out)
    print(msgspec.json.format(msgspec.json.encode(made)).decode())


def prepare(out: Path, seed: int) -> None:
    """The model, the tasks, and what train.yaml names, in one folder."""
    for name in ("buttons.py", "words.py", "train.yaml"):
        shutil.copy(HERE / name, out)
    if not (out / "eval.jsonl").exists():
        call([sys.executable, str(HERE / "buttons.py"), ".", f"--seed={seed}"], out)
    if not (out / "model").exists():
        call([str(TORCH), str(HERE / "model.py"), ".model", f"--seed={seed}"], out)
        (out / ".model").rename(out / "model")


def train(out: Path, seed: int, settings: list[str]) -> None:
    """`deskroll train`, and how long all starts of it took: a folder that holds a run is resumed."""
    if (out / "trained").exists():
        return
    more, begun, note = [word for each in settings for word in ("--set", each)], time.monotonic(), out / "seconds"
    try:
        call([*DESKROLL, "train", "train.yaml", "--log-path=run", f"--seed={seed}", *more], out)
        (out / "trained").touch()
    finally:
        note.write_text(str(float(note.read_text() if note.exists() else 0) + time.monotonic() - begun))


def play_windows(out: Path, count: int) -> tuple[float, float]:
    """The first tasks of the evaluation as real windows, with the weights of the start and those of the last step."""
    last = max((out / "run" / "weights").glob("step_*"), key=lambda each: int(each.name.removeprefix("step_")))
    with served(out) as pool:
        before = play(out, "windows-before", count, pool)
        call([*DESKROLL, "models", "reload", str(last), "--at", pool], out)
        return before, play(out, "windows-after", count, pool)


@contextmanager
def served(out: Path) -> Iterator[str]:
    """A server with the weights of the start, as train.yaml has it; its address."""
    import yaml  # noqa: PLC0415

    settings = yaml.safe_load((out / "train.yaml").read_text())["models"]
    (out / "models.yaml").write_text(yaml.safe_dump(settings | {"ckpt_path": "model"}))
    address = f"unix:{out}/models.sock"
    (out / "models.sock").unlink(missing_ok=True)  # of one that was killed
    words = [*DESKROLL, "models", "up", "models.yaml", "--listen", address]
    print(f"$ {shlex.join(words)}", flush=True)
    server = subprocess.Popen(words, cwd=out)
    try:
        while not (out / "models.sock").exists() and server.poll() is None:
            time.sleep(0.2)
        if server.poll() is not None:
            sys.exit("the model is not served, see above")
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def play(out: Path, name: str, count: int, pool: str) -> float:
    """The share of right presses."""
    settings = {
        "model.pool": pool, "model.temperature": "0", "model.max_tokens": "1", "agent": "buttons.py:PickAgent",
        "env_options.observation_type": "a11y_tree", "env_options.screen_width": "1280",
        "env_options.screen_height": "800",
    }  # fmt: skip
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    where = ["--output-dir=.", "--set", f"run_id={name}", f"--limit={count}", "--num-vms=4", "--num-rollouts=8"]
    if (out / name).exists():
        call([*DESKROLL, "run", "--resume", name], out)
    else:
        call([*DESKROLL, "run", "eval.jsonl", "--env=osworld", "--model=policy", *words, *where], out)
    scores = [each.points for each in deskroll.open_run(str(out / name)).outcomes()]
    return share([each for each in scores if each is not None])


def figures(out: Path, seed: int, count: int, before: float | None, after: float | None) -> Figures:
    """Read from the folder of the run."""
    log = TrainLog(out / "run")
    log.open()
    evaluations = [each for each in log.records if isinstance(each, EvalRecord)]
    steps = [each for each in log.records if isinstance(each, StepRecord)]
    run = deskroll.open_run(str(out / "run"))
    outcomes = list(run.outcomes())
    first = {f"eval-{number:03}" for number in range(count or WINDOWS)}

    def on_tables(phase: str, round_: int) -> float:
        chosen = (each for each in outcomes if (each.key.phase, each.key.round) == (phase, round_))
        return share([each.points or 0.0 for each in chosen if each.key.task in first])

    span = sum(sum(each.seconds.values()) for each in steps)
    return Figures(
        seed=seed, baseline=evaluations[0].mean_score or 0.0, after=evaluations[-1].mean_score or 0.0,
        tables_before=on_tables("baseline", 0), tables_after=on_tables("eval", steps[-1].step),
        windows_before=before, windows_after=after, steps=len(steps),
        refreshes=sum(later.served == earlier.step for earlier, later in itertools.pairwise(steps)) + 1,
        largest_gap=max(each.report.logprob_gap or 0.0 for each in steps),
        minutes=float((out / "seconds").read_text()) / 60, episodes=len(outcomes),
        episodes_a_second=len(outcomes) / span, tokens_a_second=sum(each.report.tokens for each in steps) / span,
    )  # fmt: skip


def share(scores: list[float]) -> float:
    """The mean."""
    return round(sum(scores) / len(scores), 4) if scores else 0.0


def call(words: list[str], folder: Path) -> None:
    """Run a command in a folder, and end where it fails."""
    print(f"$ {shlex.join(words)}", flush=True)
    ended = subprocess.run(words, cwd=folder, check=False, env=os.environ | {"TOKENIZERS_PARALLELISM": "false"})
    if ended.returncode:
        sys.exit(f"that ended with {ended.returncode}; start {shlex.join(sys.argv)} again to go on")


if __name__ == "__main__":
    main()
