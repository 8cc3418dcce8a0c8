"""Task files: every form they come in, what is kept of them, and when two tasks are the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.tasks import load_tasks, parse_task, task_digest
from deskroll.types import Task

A, B = {"id": "a", "question": "one?"}, {"id": "b", "question": "two?"}
FORMS = {
    "list.json": json.dumps([A, B]),
    "items.json": json.dumps({"name": "mine", "items": [A, B]}),
    "lines.jsonl": f"{json.dumps(A)}\n{json.dumps(B)}\n",
    "blank.jsonl": f"\n{json.dumps(A)}\n  \n\t\n{json.dumps(B)}\n\n",
    "no-end.jsonl": f"{json.dumps(A)}\n{json.dumps(B)}",
    "windows.jsonl": f"{json.dumps(A)}\r\n{json.dumps(B)}\r\n",
    "mark.jsonl": f"\ufeff{json.dumps(A)}\n{json.dumps(B)}\n",
    "mark.json": f"\ufeff{json.dumps([A, B])}",
    "SHOUTED.JSONL": f"{json.dumps(A)}\n{json.dumps(B)}\n",
    "pretty.json": json.dumps([A, B], indent=4),
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_file(name: str, tmp_path: Path) -> None:
    tasks = load_tasks(write(tmp_path, name, FORMS[name]))
    assert tasks == [Task(id="a", instruction="one?"), Task(id="b", instruction="two?")]


def test_one_object_is_one_task(tmp_path: Path) -> None:
    assert [task.id for task in load_tasks(write(tmp_path, "one.json", json.dumps(A, indent=1)))] == ["a"]


def test_lines_may_hold_separators_that_only_some_take_for_line_ends(tmp_path: Path) -> None:
    text = json.dumps({"id": "a", "question": "one\u2028two\x85three\x0bfour"}, ensure_ascii=False)
    tasks = load_tasks(write(tmp_path, "t.jsonl", text.replace("\\u000b", "\\u000b")))
    assert tasks[0].instruction == "one\u2028two\x85three\x0bfour"


def test_limit_takes_the_first_and_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path, "t.jsonl", f"{json.dumps(A)}\n{json.dumps(B)}\nthis is no JSON\n")
    assert [task.id for task in load_tasks(path, limit=2)] == ["a", "b"]
    with pytest.raises(InputError, match=r"t\.jsonl:3: it is not valid JSON"):
        load_tasks(path)


@pytest.mark.parametrize(
    ("given", "read"), [(7, "7"), (-1, "-1"), ("é/ü 漢字 🙂", "é/ü 漢字 🙂"), ("..", ".."), (" a ", " a ")]
)
def test_ids_are_texts_and_whole_numbers(given: object, read: str) -> None:
    assert parse_task({"id": given, "question": "q"}, "here").id == read


def test_a_number_and_its_text_are_one_id(tmp_path: Path) -> None:
    path = write(tmp_path, "t.json", '[{"id": 7, "question": "q"}, {"id": "7", "question": "q"}]')
    with pytest.raises(InputError, match=r"t\.json\[1\]: id '7' is there already, at .*t\.json\[0\]"):
        load_tasks(path)


@pytest.mark.parametrize(
    ("given", "read"),
    [("42", "42"), (42, "42"), (0.5, "0.5"), (None, None), (0, "0")],
)
def test_the_reference_answer_is_a_text_or_none(given: object, read: str | None) -> None:
    assert parse_task({"id": "a", "question": "q", "answer": given}, "here").answer == read


@pytest.mark.parametrize("given", [["Paris", "paris"], {"a": 1}, True])
def test_a_reference_answer_of_another_kind_is_refused(given: object) -> None:
    with pytest.raises(
        InputError, match=r"task 'a': answer must be one text or one number; this is a (list|object|bool)"
    ):
        parse_task({"id": "a", "question": "q", "answer": given}, "here")


def test_what_deskroll_does_not_know_is_kept() -> None:
    more = {"source": "web", "tags": ["x", {"deep": None}], "env_config": {"proxy": True}, "snapshot": "chrome"}
    task = parse_task({**A, **more}, "here")
    assert task.metadata == more


def test_the_format_of_osworld() -> None:
    steps = [{"type": "launch", "parameters": {"command": ["gedit"]}}, {"type": "sleep", "parameters": {"seconds": 1}}]
    evaluator = {"func": "exact_match", "result": {"type": "vm_file"}, "expected": {"type": "rule"}}
    raw = {"id": "x", "instruction": "do it", "domain": "os", "config": steps, "evaluator": evaluator, "proxy": False}
    task = parse_task(raw, "here")
    assert (task.instruction, task.domain, task.evaluator) == ("do it", "os", evaluator)
    assert task.setup == tuple(steps)
    assert task.metadata == {"proxy": False}
    assert parse_task({**A, "setup": steps}, "here").setup == tuple(steps)


def test_an_instruction_goes_before_a_question() -> None:
    task = parse_task({"id": "a", "instruction": "do it", "question": "why?"}, "here")
    assert (task.instruction, task.metadata) == ("do it", {"question": "why?"})


def test_the_digest_knows_every_field_and_no_order_of_keys() -> None:
    raw = {"id": "a", "question": "q", "answer": "1", "x": {"b": [1, 2], "a": None}, "evaluator": {"k": 1, "l": 2}}
    turned = {"evaluator": {"l": 2, "k": 1}, "x": {"a": None, "b": [1, 2]}, "answer": 1, "question": "q", "id": "a"}
    digest = task_digest(parse_task(raw, "here"))
    assert task_digest(parse_task(turned, "there")) == digest
    changes = [{"id": "b"}, {"question": "r"}, {"answer": "2"}, {"domain": "d"}, {"env": "math"}, {"config": [{}]},
               {"x": {"b": [2, 1], "a": None}}, {"y": 1}, {"evaluator": {"k": 1}}]  # fmt: skip
    found = {task_digest(parse_task({**raw, **change}, "here")) for change in changes}
    assert len(found | {digest}) == len(changes) + 1


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 10**18])
def test_numbers_of_64_bits_are_kept(number: int, tmp_path: Path) -> None:
    path = write(tmp_path, "t.json", f'{{"id": "a", "question": "q", "n": {number}}}')
    assert load_tasks(path)[0].metadata == {"n": number}
