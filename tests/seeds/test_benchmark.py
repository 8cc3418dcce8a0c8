"""Benchmark: reading tasks and judging answers, by the documents' names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark import Benchmark
from deskroll.errors import ConfigError, InputError
from tests.seeds.conftest import ROOT

ITEMS: list[dict[str, Any]] = [
    {"id": "a", "question": "1 + 1?", "answer": "2", "level": "easy"},
    {"id": "b", "question": "Capital of France?", "answer": "Paris", "env_config": {"snapshot": "s", "proxy": True}},
]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", "\n".join(map(json.dumps, ITEMS)) + "\n\n"),
        ("t.json", json.dumps(ITEMS)),
        ("t.json", json.dumps({"items": ITEMS})),
        ("t.jsonl", "\ufeff" + "\n".join(map(json.dumps, ITEMS))),
    ],
)
def test_every_form_of_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    items = Benchmark(data_path=str(written(tmp_path, name, text))).get_items()
    assert [(each.id, each.question, each.answer) for each in items] == [
        ("a", "1 + 1?", "2"),
        ("b", "Capital of France?", "Paris"),
    ]
    assert items[0].metadata == {"level": "easy"}
    assert items[1].metadata == {"env_config": {"snapshot": "s", "proxy": True}}


def test_one_object_is_one_task(tmp_path: Path) -> None:
    benchmark = Benchmark(data_path=written(tmp_path, "one.json", json.dumps(ITEMS[0])))
    assert [each.id for each in benchmark] == ["a"]
    assert len(benchmark) == 1


def test_the_fields_of_osworld_are_kept(tmp_path: Path) -> None:
    task = {
        "id": "o", "instruction": "Do it.", "snapshot": "chrome", "source": "x", "domain": "os",
        "config": [{"type": "launch", "parameters": {"command": ["xterm"]}}],
        "evaluator": {"func": "infeasible"}, "related_apps": ["os"], "proxy": False,
    }  # fmt: skip
    item = Benchmark(data_path=written(tmp_path, "o.json", json.dumps(task))).get_item("o")
    assert item.question == "Do it."
    assert item.metadata == {name: task[name] for name in task if name not in ("id", "instruction")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "a", "question": "x"}\n{"id": "a", "question": "y"}', r"t.jsonl:2: id 'a' is there already.*:1"),
        ('{"id": "a", "question": "x"}\n{"id": "b"}', r"t.jsonl:2: task 'b': question is missing"),
        ('{"question": "x"}', r"t.jsonl:1: id is missing"),
        ('{"id": "a", "question": "x"}\n{"id": ', r"t.jsonl:2: it is not valid JSON, at column"),
        (
            '{"id": "a", "question": "x", "action_space": "pyautogui"}',
            "t.jsonl:1: .*action_space is a start-up setting",
        ),
        (
            '{"id": "a", "question": "x", "env_config": {"observation_type": "som"}}',
            "t.jsonl:1: .*env_config.observation_type is a start-up setting, which all tasks of a run share",
        ),
        ("[1]", "t.jsonl:1: a task is an object"),
        ("", "there is no task in it"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Benchmark(data_path=written(tmp_path, "t.jsonl", text))


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    return Benchmark(data_path=written(tmp_path, "t.json", json.dumps([*ITEMS, {"id": "c", "question": "Why?"}])))


def test_answers_are_judged_by_id(benchmark: Benchmark) -> None:
    results = benchmark.evaluate({"a": "2", "b": "paris"}, metric="exact_match")
    assert [(each.item_id, each.score) for each in results] == [("a", 1.0), ("b", 0.0), ("c", None)]
    assert results[2].reason == "the task has no reference answer"
    assert results[1].ground_truth == "Paris"


def test_a_failed_task_stays_among_the_attempted(benchmark: Benchmark) -> None:
    records = [{"task_id": "a", "answer": None, "error": "its desktop died"}, {"task_id": "b", "answer": None}]
    results = benchmark.evaluate(records, metric="contains_answer")
    assert len(results) == 3
    assert (results[0].score, results[0].reason) == (None, "its desktop died")
    assert (results[1].score, results[1].reason) == (0.0, "no answer was given")


def test_an_agents_failure_counts_as_the_run_scored_it(benchmark: Benchmark) -> None:
    records = [
        {"task_id": "a", "answer": None, "error": "agent: it gave no action", "evaluation_score": 0.0},
        {"task_id": "b", "answer": None, "error": "its desktop died", "evaluation_score": None},
        {"task_id": "c", "answer": None, "error": "agent: desktop_lost", "evaluation_score": 0.0},
    ]
    results = benchmark.evaluate(records)
    assert [(each.score, each.reason) for each in results] == [
        (0.0, "agent: it gave no action"),
        (None, "its desktop died"),
        (0.0, "agent: desktop_lost"),
    ]
    unjudged = "evaluation is switched off (evaluate_results is False)"
    results = benchmark.evaluate([{"task_id": "a", "answer": None, "error": unjudged}])
    assert (results[0].score, results[0].reason) == (0.0, "no answer was given")
    answered = [{"task_id": "a", "answer": "2", "error": "it said no more", "evaluation_score": 0.0}]
    assert benchmark.evaluate(answered)[0].score == 1.0


def test_metrics_that_ask_no_model_need_no_settings_of_one(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "my-proxy:8080")
    assert benchmark.evaluate({"a": "2"}, metric="exact_match")[0].score == 1.0
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not an HTTP address"):
        benchmark.evaluate({"a": "2"}, metric="llm_judgement", judge_model="m")


def test_metrics_and_answers_that_are_not_there_are_named(benchmark: Benchmark) -> None:
    with pytest.raises(InputError, match="metric is 'bleu'; allowed: exact_match"):
        benchmark.evaluate({}, metric="bleu")
    with pytest.raises(InputError, match="there is no task 'z'"):
        benchmark.evaluate({"z": "1"})
    with pytest.raises(InputError, match=r"predictions\[0\] has neither task_id nor id"):
        benchmark.evaluate([{"answer": "1"}])


def test_numbers_are_answers_and_other_things_are_named(benchmark: Benchmark) -> None:
    assert benchmark.evaluate({"a": 2})[0].score == 1.0
    with pytest.raises(InputError, match="the answer to task 'a' is a list; it must be a text, a number or None"):
        benchmark.evaluate({"a": ["2"]})
    with pytest.raises(InputError, match=r"predictions\[0\] is a tuple"):
        benchmark.evaluate([("a", "2")])
    with pytest.raises(InputError, match=r"predictions\[1\]: there is an answer to task 'a' already"):
        benchmark.evaluate([{"id": "a", "answer": "2"}, {"task_id": "a", "answer": "3"}])
    with pytest.raises(InputError, match="exact_match asks no model: leave it out"):
        benchmark.evaluate({"a": "2"}, judge_model="m")


def test_a_judge_that_cannot_be_asked_scores_nothing(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    results = benchmark.evaluate({"a": "2"}, metric="llm_judgement", judge_model="m")
    assert results[0].score is None
    assert "judge" in results[0].reason


def test_every_file_that_the_documents_name_is_there() -> None:
    for name in ("osworld_examples", "large_dataset", "critical_tasks", "standard_tasks"):
        assert len(Benchmark(data_path=ROOT / f"data/{name}.jsonl")) > 0
    for name in ("osworld_tasks", "math_tasks"):
        assert len(Benchmark(data_path=ROOT / f"benchmarks/{name}.jsonl")) > 0
    for mode in ("math", "py", "web", "rag"):
        assert len(Benchmark(data_path=ROOT / f"data/{mode}_examples.jsonl")) > 0
