"""Scripts as people write them: what is read, and what is said when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deskroll.errors import ConfigError
from deskroll.models.scripted import FaultKind, Script, Turn

EXAMPLE = """\
latency: 0.05            # s, or [low, high]
seed: 1
faults: {rate: 0.3, kinds: [429, 500, 503, half_body, invalid_json, wrong_tool, bad_arguments, stall, reset], stall: 30}
replies:
  - when: "compute"
    turns:
      - {text: "let me see", tools: [{name: calculator, arguments: {expressions: ["6*7"]}}]}
      - {text: "42"}
  - when: {regex: "a|b"}
    turns: [{tools: [{name: click, arguments: "{broken"}]}]
  - turns: [{text: "done"}]
"""


def test_a_script_in_yaml_and_in_json(tmp_path: Path) -> None:
    file = tmp_path / "script.yaml"
    file.write_text(EXAMPLE)
    script = Script.load(file)
    assert script.latency == (0.05, 0.05)
    assert script.faults.kinds == tuple(FaultKind)
    first = script.turn("please compute", 0)
    assert first is not None
    assert first.tools[0].arguments == '{"expressions":["6*7"]}'
    assert script.turn("xa", 3) == Turn.model_validate({"tools": [{"name": "click", "arguments": "{broken"}]})
    assert script.turn("other", 9) == Turn(text="done")
    again = tmp_path / "script.json"
    again.write_text(json.dumps({"latency": [0, 1], "replies": [{"turns": [{"text": "\U0001f600"}]}]}))
    assert Script.load(again).turn("", 0) == Turn(text="\U0001f600")
    assert Script.load(again).latency == (0, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replies: []\n", "s.yaml:1: replies: "),
        ("seed: 1\n", "s.yaml: replies: it is required, and missing"),
        ("replies:\n  - when: x\n", "s.yaml:2: replies.0.turns: it is required, and missing"),
        ("replies:\n  - turns: []\n", "s.yaml:2: replies.0.turns: "),
        ("replies:\n  - turns:\n    - {txt: hi}\n", "s.yaml:3: replies.0.turns.0.txt: there is no such field; did you"),
        ("replies:\n  - turns:\n    - {}\n", "s.yaml:3: replies.0.turns.0: a turn needs a text, tools, or both"),
        (
            "replies:\n  - turns:\n    - {text: 42}\n",
            "s.yaml:3: replies.0.turns.0.text: input should be",
        ),
        ("replies:\n  - turns: [{tools: [{name: f, arguments: [1]}]}]\n", "arguments are fields with their values"),
        ("replies:\n  - turns: [{tools: [{arguments: {}}]}]\n", "replies.0.turns.0.tools.0.name: it is required"),
        (
            "replies:\n  - when: {regex: '('}\n    turns: [{text: a}]\n",
            "s.yaml:2: replies.0.when.regex: it is no",
        ),
        ("replies:\n  - when: {regexp: a}\n    turns: [{text: a}]\n", "did you mean regex?"),
        ("replies:\n  - turns: [{text: a}]\n  - turns: [{text: b}]\n", "replies.0 has no `when`"),
        ("latency: soon\nreplies: [{turns: [{text: a}]}]\n", "s.yaml:1: latency: it is a number of seconds"),
        ("latency: [2, 1]\nreplies: [{turns: [{text: a}]}]\n", "the lower one comes first"),
        ("latency: -1\nreplies: [{turns: [{text: a}]}]\n", "s.yaml:1: latency"),
        ("faults: {rate: 2}\nreplies: [{turns: [{text: a}]}]\n", "s.yaml:1: faults.rate: input should be less than"),
        (
            "faults: {kinds: [418]}\nreplies: [{turns: [{text: a}]}]\n",
            "s.yaml:1: faults.kinds.0: input should be",
        ),
        ("faults: {kinds: []}\nreplies: [{turns: [{text: a}]}]\n", "s.yaml:1: faults.kinds"),
        ("replies: {\n", "it is not valid YAML"),
    ],
)
def test_mistakes_in_yaml(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Script.load(file)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n\n", "s.json:3: it is not valid JSON"),
        ("[]", "s.json: "),
        ('{"replies": [{"turns": [{"txt": "hi"}]}]}', "s.json: replies.0.turns.0.txt: "),
        ('{"replies": [{"turns": [{}]}]}', "s.json: replies.0.turns.0: a turn needs"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_mistakes_in_json(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        Script.load(file)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["none.yaml", "none.json", "script.txt"])
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name):
        Script.load(tmp_path / name)
