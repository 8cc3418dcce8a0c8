"""A service that is killed again and again while batches come: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.serving import ROOT, Served, task
from tests.waiting import wait_until

BATCHES, KILLS, BAD = 200, 10, 10
_CONSUME = str(Path(__file__).with_name("consume.py"))


@contextmanager
def consumer(served: Served, log: Path, stop_after: int = -1) -> Iterator[subprocess.Popen[bytes]]:
    """A consumer that is killed in the end."""
    command = [sys.executable, _CONSUME, str(served.root), "trainer", str(log), str(stop_after)]
    with (log.parent / "consumer.txt").open("ab") as said, subprocess.Popen(command, cwd=ROOT, stderr=said) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(log: Path, word: str) -> list[str]:
    """What a consumer has written, behind one word."""
    text = log.read_text() if log.exists() else ""
    return [line.removeprefix(f"{word} ") for line in text.splitlines() if line.startswith(f"{word} ")]


@pytest.mark.timeout(600)
def test_200_batches_and_ten_kills(tmp_path: Path, runtime_folder: Path) -> None:
    served, dice, log = Served(tmp_path), random.Random(7), tmp_path / "consumed.txt"
    bad = set(dice.sample(range(BATCHES), BAD))
    good = {f"b{n:03}.jsonl": [task(f"{n}-{each}") for each in "ab"] for n in range(BATCHES) if n not in bad}
    with served.ended():
        served.start()
        for n in range(BATCHES):
            served.drop(f"b{n:03}.jsonl", '{"id": "x"' if n in bad else good[f"b{n:03}.jsonl"])
            if n % (BATCHES // KILLS) == BATCHES // KILLS - 1:
                all_of_it = 2 * sum(each not in bad for each in range(n + 1))
                served.wait_for_sealed(min(served.sealed() + dice.randrange(1, 16), all_of_it))
                served.kill()
                served.start()
        with consumer(served, log, stop_after=20):
            wait_until(lambda: len(lines(log, "read")) == 21, "it has read one group that is not done")
        unsure = lines(log, "read")[-1]
        with consumer(served, log):
            served.wait_for("finished", BATCHES - BAD)
            wait_until(lambda: len(lines(log, "done")) == 2 * (BATCHES - BAD), "all groups are done")
        assert served.terminate() == 0, served.log()
    assert set(served.outcomes().values()) == {1}
    assert served.outcomes().total() == 2 * (BATCHES - BAD)
    done, read = Counter(lines(log, "done")), Counter(lines(log, "read"))
    rounds = {each["round"]: each["id"] for each in served.ledger() if each["type"] == "taken"}
    expected = {f"{n} {each['id']} complete 1" for n, name in rounds.items() for each in good[name]}
    assert (set(done), set(done.values())) == (expected, {1})
    assert {key for key, times in read.items() if times > 1} == {unsure}
    assert sorted(rounds.values()) == sorted(good)
    assert {each["id"] for each in served.ledger() if each["type"] == "bad"} == {f"b{n:03}.jsonl" for n in bad}
    assert {path.name for path in (served.inbox / "bad").iterdir()} == {
        name for n in bad for name in (f"b{n:03}.jsonl", f"b{n:03}.jsonl.error")
    }
