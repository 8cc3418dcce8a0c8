"""Every command and example of the documents runs as it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seeds import documents
from tests.seeds.conftest import ROOT, Checkout

VMWARE = {"DESKROLL_PROVIDER": "local"}
"""What the user of a machine without VMware adds, as the refusal says."""


@pytest.mark.skipif(not documents.SHARED.exists(), reason="the documents are not at hand")
@pytest.mark.parametrize("name", ["000", "001", "004"])
def test_the_list_is_complete(name: str) -> None:
    assert documents.fenced(name, "bash") == [each.strip() for each in documents.SHELL[name]]
    assert documents.fenced(name, "python") == [each.strip() for each in documents.PYTHON[name]]


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("command", "example", "desktops", "env"),
    [
        pytest.param(documents.OSWORLD_BASIC, "data/osworld_examples", 5, {}, id="000-1"),
        pytest.param(documents.OSWORLD_CHEAP, "data/large_dataset", 2, {}, id="000-3"),
        pytest.param(documents.OSWORLD_FAST, "data/critical_tasks", 10, {}, id="000-4"),
        pytest.param(documents.OSWORLD_BALANCED, "data/standard_tasks", 5, {}, id="000-5"),
        pytest.param(documents.OSWORLD_POOL, "data/osworld_examples", 3, VMWARE, id="001-pool"),
        pytest.param(documents.OSWORLD_OWN, "data/osworld_examples", 5, VMWARE, id="001-own"),
        pytest.param(documents.OSWORLD_SMALL, "benchmarks/osworld_tasks", 2, VMWARE, id="001-small"),
    ],
)
def test_a_command_on_desktops(
    checkout: Checkout, command: str, example: str, desktops: int, env: dict[str, str]
) -> None:
    checkout.place("osworld_examples")
    came = checkout.shell(command, **env)
    assert came.code == 0, came.err
    scores = {task: episode.score.value for task, episode in came.outcomes().items()}
    assert scores == dict.fromkeys(ids(ROOT / f"{example}.jsonl"), 1.0)
    assert came.most_desktops() == min(desktops, len(scores))  # none is booted that no task will have
    assert "parallel rollout finished" in came.err
    if env:
        assert "provider vmware was asked for; DESKROLL_PROVIDER=local takes its place" in came.err


def test_the_example_in_code(checkout: Checkout) -> None:
    source = documents.OSWORLD_IN_CODE + "import json; print(json.dumps(results))\n"
    came = checkout.python(source, **VMWARE)
    assert came.code == 0, came.err
    results = json.loads(came.out)
    assert [each["task_id"] for each in results] == ids(ROOT / "data/osworld_examples.jsonl")
    for each in results:
        assert each.keys() == {"task_id", "question", "answer", "messages", "success", "error", "evaluation_score"}
        assert (each["success"], each["error"], each["evaluation_score"]) == (True, None, 1.0)
        assert each["messages"][0]["role"] == "system"
    assert came.most_desktops() == 5
    assert Path(came.run.root).parent == checkout.folder / "results" / "custom_run"


@pytest.mark.parametrize(
    ("mode", "tool"),
    [("math", "calculator"), ("py", "python_interpreter"), ("web", "web_visit"), ("rag", "local_search")],
)
def test_a_command_without_desktops(checkout: Checkout, mode: str, tool: str) -> None:
    checkout.place(f"{mode}_examples")
    came = checkout.shell(documents.OTHERS.replace("--mode math", f"--mode {mode}"))
    assert came.code == 0, came.err
    tasks = ids(ROOT / f"data/{mode}_examples.jsonl")
    assert {task: episode.score.value for task, episode in came.outcomes().items()} == dict.fromkeys(tasks, 1.0)
    assert came.most_desktops() == 0
    called = [
        call["function"]["name"]
        for task in tasks
        for message in came.messages(task)
        for call in message.get("tool_calls") or ()
    ]
    assert called.count(tool) >= len(tasks) // 2
    assert not any(
        message["role"] == "tool" and str(message["content"]).startswith("error")
        for task in tasks
        for message in came.messages(task)
    )


def test_the_large_command_on_mathematics(checkout: Checkout) -> None:
    came = checkout.shell(documents.MATH_LARGE)
    assert came.code == 0, came.err
    tasks = ids(ROOT / "benchmarks/math_tasks.jsonl")
    assert {task: episode.score.value for task, episode in came.outcomes().items()} == dict.fromkeys(tasks, 1.0)


def test_vmware_without_vmrun_is_refused_with_what_to_do(checkout: Checkout) -> None:
    checkout.place("osworld_examples")
    command = documents.OSWORLD_POOL + "exit 0"
    with pytest.raises(AssertionError, match="DESKROLL_PROVIDER=local"):
        checkout.shell(command)  # no run at all
