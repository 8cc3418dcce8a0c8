"""docs/service.md: its settings are those of a service, and what it shows runs as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.field_docs import describe_all
from deskroll.service.config import ServiceConfig, load_service
from tests.waiting import wait_until

PAGE = (Path(__file__).parent.parent / "docs" / "service.md").read_text()
PROGRAM = Path(sys.executable).with_name("deskroll")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def test_its_settings_are_those_of_a_service() -> None:
    known = {each.path: each.shown_default for each in describe_all(ServiceConfig)}
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(\w+)`)? ?\|", PAGE, re.M)
    assert dict(rows) == {name: known[name] for name, _ in rows}
    own = {name for name in known if name.partition(".")[0] in ("source", "backoff_ms", "max_batches", "listen")}
    assert own <= {name for name, _ in rows}


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_its_settings_files_can_be_read(tmp_path: Path, number: int) -> None:
    text = blocks("yaml")[number]
    if text.startswith("# answers"):
        return
    path = tmp_path / "service.yaml"
    path.write_text(text)
    assert load_service(path, ()).source.at


def test_from_the_first_file_to_the_last_curl(tmp_path: Path, runtime_folder: Path) -> None:
    answers, service = blocks("yaml")[:2]
    (tmp_path / "answers.yaml").write_text(answers)
    (tmp_path / "service.yaml").write_text(service)
    env = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    start, feed, ask = (each.strip() for each in blocks("sh"))
    log = (tmp_path / "log.txt").open("w")
    with log, subprocess.Popen(["bash", "-c", start], cwd=tmp_path, env=env, stderr=log) as process:
        try:
            wait_until((tmp_path / "results/service/batches.jsonl").exists, "it is there")
            wait_until(lambda: "batches from inbox" in (tmp_path / "log.txt").read_text(), "it answers")
            subprocess.run(["bash", "-ec", feed], cwd=tmp_path, env=env, check=True)
            said = subprocess.run(
                ["bash", "-ec", ask], cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=90
            ).stdout
            consumer = blocks("python")[0].replace("await group.done()", "await group.done(); break")
            consumer = consumer.replace('"trainer"', '"another"')
            read = subprocess.run(
                [sys.executable, "-c", consumer], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=90
            ).stdout
        finally:
            process.terminate()
            process.wait(90)
    groups, done = re.fullmatch(r"({.*})({.*})", said, re.S).groups()  # type: ignore[union-attr]
    assert [each["task"] for each in json.loads(groups)["groups"]] == ["sum"]
    assert json.loads(done) == {"consumer": "trainer", "done": 1}
    assert read.startswith("0 sum complete [1.0, 1.0, 1.0, 1.0]")
    assert process.returncode == 0
