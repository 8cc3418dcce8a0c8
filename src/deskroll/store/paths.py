"""The run tree: every name below a run's folder, and how ids become names of folders.

    <output_dir>/<run_id>/
      run.json                 RunInfo: the resolved config, versions, git commit, machine
      journal.jsonl            plan, groups, attempts, outcomes, desktops: the truth
      journal.jsonl.damaged-<n>  a damaged journal as a resume found it, before it put it right
      results.jsonl            one line an outcome, for people and other tools
      summary.json             scores, time and cost
      events.jsonl             what happened, the newest of it; events.jsonl.1: before that
      specs/<digest>.json      what episodes of jobs on a runtime are made of, as far as it decides outcomes
      batches.jsonl            of a service: which batches came, in which round each was run, which were bad
      batches/<round>.json     the tasks of a batch, as they were read
      bad/                     bad batches that lie in no folder of their own, each with its error
      consumers/<name>.jsonl   which groups a consumer has done
      train.jsonl              of a training run: one line for each step and each evaluation
      train.yaml               of a training run: its settings as they were given, secrets masked
      weights/step_<n>/        of a training run: checkpoints; trainer/: what its trainer goes on from; trainer.log
      .lock                    who runs it (on a local path)
      journal.d/               on an object store: the journal while the run goes on
        epoch-<n>              who took the run over for the n-th time
        <epoch>-<part>.jsonl   its lines
      episodes/<phase>/<round>/<task>/<sample>/<attempt>/
        episode.json           the manifest: the attempt's own account, and every file with its size and digest
        task.json              the task as it was run
        steps.jsonl            what was seen, thought, done, at what time
        conversation.json      the messages, as sent
        screens/<n>.png        each distinct screen once, the bytes that the model saw; <n>.jpg where they are a JPEG
        tokens.npz             token ids and log-probabilities, where the model gives them
        recording.mp4          where recording is on
        error.txt              where in an agent's, an environment's or an evaluator's code its failure came from
        judged.json            what a judge was asked and said; asked.json: what a tool asked the model

Whatever an `episode.json` says of how an attempt ended, the outcome is what the journal says.

Paths are relative to the run's folder, with "/" between their parts. What a task is called never leads out of its
folder: ids are escaped, reversibly up to `LONGEST_NAME` bytes; beyond that the key in `episode.json` tells.
"""

from __future__ import annotations

import functools
import hashlib
import re
from urllib.parse import unquote_to_bytes

from deskroll.errors import StoreError, plain
from deskroll.types import EpisodeKey

RUN_JSON = "run.json"
JOURNAL = "journal.jsonl"
JOURNAL_PARTS = "journal.d"
RESULTS = "results.jsonl"
SUMMARY = "summary.json"
EVENTS = "events.jsonl"
OLDER_EVENTS = "events.jsonl.1"
BATCHES = "batches.jsonl"
TRAIN_LOG = "train.jsonl"
TRAIN_CONFIG = "train.yaml"
BAD = "bad"
LOCK = ".lock"
EPISODES = "episodes"

EPISODE_JSON = "episode.json"
TASK_JSON = "task.json"
STEPS = "steps.jsonl"
CONVERSATION = "conversation.json"
SCREENS = "screens"
TOKENS = "tokens.npz"
RECORDING = "recording.mp4"

LONGEST_NAME = 100
"""Bytes that the name of one folder may have; longer ones are cut, and a digest makes them distinct."""
_KEPT = 80
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")
_ODD_START = re.compile(rb"\.|(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?=\.|$)")
"""Hidden on Unix, or a device on Windows, whatever the suffix."""


def spec_file(digest: str) -> str:
    """The file that holds what episodes are made of."""
    return f"specs/{inside(digest)}.json"


def batch_file(round_: int) -> str:
    """The file that holds the tasks of a service's batch."""
    return f"batches/{round_}.json"


def consumer_file(name: str) -> str:
    """The file that says what a consumer has done."""
    return f"consumers/{inside(name)}.jsonl"


def attempt_folder(key: EpisodeKey, attempt: int) -> str:
    """The folder of one attempt, relative to the run's."""
    return f"{EPISODES}/{escape(key.phase)}/{key.round}/{escape(key.task)}/{key.sample}/{attempt}"


@functools.lru_cache(maxsize=4096)
def escape(name: str) -> str:
    """The name as one part of a path: %XX for everything but letters, digits, dots, dashes and underscores."""
    raw = name.encode("utf-8", "surrogatepass")
    escaped = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw)
    if _ODD_START.match(escaped):
        escaped = b"%%%02X" % escaped[0] + escaped[1:]
    if escaped.endswith(b"."):
        escaped = escaped[:-1] + b"%2E"
    if len(escaped) > LONGEST_NAME:
        digest = hashlib.blake2b(raw, digest_size=8).hexdigest().encode()
        escaped = re.sub(rb"%.?$", b"", escaped[:_KEPT]) + b"~" + digest
    return escaped.decode("ascii") or "%"


def unescape(name: str) -> str | None:
    """What `escape` was given; None where the name was cut."""
    if "~" in name:
        return None
    return "" if name == "%" else unquote_to_bytes(name).decode("utf-8", "surrogatepass")


def inside(path: str) -> str:
    """The relative path, when it stays below the folder it is relative to; StoreError when it does not."""
    parts = path.split("/")
    if not all(parts) or "." in parts or ".." in parts or "\0" in path or "\\" in path:
        raise StoreError(f"{plain(path)!r} is not a path below a run's folder: what names it is broken or hostile")
    return path
