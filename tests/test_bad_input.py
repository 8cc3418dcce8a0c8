"""Bad input to `deskroll run`: one message that names the place and says what to do, exit code 2, nothing started."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deskroll.models.scripted import Script, ScriptedServer
from tests.commands import Commands, Ended, clean_environment
from tests.waiting import wait_until

TASK = '{"id": "a", "question": "6*7?", "answer": "42"}\n'
OTHER = TASK.replace('"a"', '"b"')
SCRIPT = 'replies: [{turns: [{text: "42"}]}]\n'
CONFIG = 'tasks: t.jsonl\nenv: math\nmodel: {name: "scripted:s.yaml"}\n'
MATH = "run t.jsonl --env math --model scripted:s.yaml"
DESK = "run t.jsonl --provider sim --model scripted:s.yaml"
YAML = "run --config c.yaml"
TOML = "run --config c.toml"
SECRET = "sk-never-to-be-shown"


@dataclass(frozen=True)
class Case:
    """A command that must be refused."""

    name: str
    command: str
    words: tuple[str, ...]
    """What the message must hold: the place, the field, what to do."""
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    """Beside the good task file `t.jsonl` and the good script `s.yaml`; None is a folder."""
    env: Mapping[str, str] = field(default_factory=dict)


def tasks(name: str, text: str | bytes, *words: str, command: str = MATH) -> Case:
    return Case(f"tasks: {name}", command, words, {"t.jsonl": text})


def listed(name: str, text: str, *words: str) -> Case:
    return Case(f"tasks: {name}", MATH.replace("t.jsonl", "t.json"), words, {"t.json": text})


def flags(name: str, more: str, *words: str, command: str = MATH, **env: str) -> Case:
    return Case(f"flags: {name}", f"{command} {more}", words, env=env)


def config(name: str, text: str | bytes, *words: str) -> Case:
    return Case(f"config: {name}", YAML, words, {"c.yaml": text})


def script(name: str, text: str, *words: str) -> Case:
    return Case(f"script: {name}", MATH, words, {"s.yaml": text})


def folder(name: str, files: Mapping[str, str | None], *words: str, command: str = "run --resume d") -> Case:
    return Case(f"resume: {name}", command, words, files)


TASKS = [
    Case("tasks: no file", MATH.replace("t.", "no."), ("no.jsonl: there is no such file", "name a .json or .jsonl")),
    Case("tasks: a folder", MATH.replace("t.jsonl", "d"), ("d: this is a folder", "give a .json"), {"d": None}),
    Case("tasks: suffix", MATH.replace("t.jsonl", "t.txt"), ("t.txt: the suffix is '.txt'; allowed: .json, .jsonl",),
         {"t.txt": TASK}),
    tasks("no JSON on line 3", f'{TASK}\n{{"id": }}\n', "t.jsonl:3: it is not valid JSON, at column 8"),
    listed("line 3 of a list", '[\n{"id": "a"},\n{"id" "b"}]', "t.json:3: it is not valid JSON, at column 7"),
    Case("tasks: an empty list", "run e.json --env math", ("e.json: there is no task in it; write a list of objects",),
         {"e.json": "[]"}),
    Case("tasks: env by a path", "run t.jsonl --env math", ("env is '/etc/passwd'; a task may name: osworld, math",),
         {"t.jsonl": '{"id": "a", "question": "b", "env": "/etc/passwd"}'}),
    Case("tasks: an evaluator that is nearly one", "run t.jsonl --provider sim", ("did you mean exact_match?",),
         {"t.jsonl": '{"id": "a", "question": "b", "evaluator": {"func": "exact_mach"}}'}),
    Case("tasks: a step that is nearly one", "run t.jsonl --provider sim", ("did you mean launch?",),
         {"t.jsonl": '{"id": "a", "question": "b", "config": [{"type": "lunch", "parameters": {}}]}'}),
    tasks("an empty file", "", "t.jsonl: there is no task in it; write one JSON object a line"),
    tasks("nothing but blank lines", "\n \n", "t.jsonl: there is no task in it"),
    listed("an empty list", "[]", "t.json: there is no task in it"),
    tasks("two of one id", TASK + OTHER + TASK, "t.jsonl:3: id 'a' is there already, at", "t.jsonl:1; ids must be"),
    tasks("no id", '{"question": "q"}', "t.jsonl:1: id is missing; every task has an id and a question"),
    tasks("no question", '{"id": "q"}', "t.jsonl:1: task 'q': question is missing; every task has"),
    tasks("an id that is a list", '{"id": [1], "question": "q"}', "t.jsonl:1: id is a list; it must be a text"),
    tasks("an id that is true", '{"id": true, "question": "q"}', "id is a boolean; it must be a text"),
    tasks("an empty question", '{"id": 1, "question": " "}', "task '1': question is empty; it must be a text"),
    tasks("a long id", f'{{"id": "{"x" * 201}", "question": "q"}}', "id has 201 characters; allowed: at most 200"),
    tasks("a task that is a list", f'{TASK}["id"]', "t.jsonl:2: a task is an object with id and question; this is a l"),
    tasks("two equal keys", f'{TASK}{{"id": 1, "id": 2, "question": "q"}}', "t.jsonl:2:", "'id' is there twice"),
    tasks("a number too large", f'{{"id": 1, "question": "q", "n": {"9" * 40}}}', "t.jsonl:1:", "write it as a text"),
    tasks("NaN", '{"id": 1, "question": "q", "n": [NaN]}', "t.jsonl:1:", "NaN is not JSON; write null"),
    tasks("half a character", f'{TASK}{{"id": 1, "question": "\\ud800"}}', "t.jsonl:2: task '1'", "whole character"),
    tasks("nested too deeply", f'{{"id": 1, "n": {"[" * 99_999}', "t.jsonl:1: it is not valid JSON"),
    tasks("no UTF-8", b'{"id": "1", "question": "\xff"}', "t.jsonl: byte 25 is not UTF-8; save the file as UTF-8"),
    listed("a suite", '{"chrome": ["a", "b"], "os": ["c"]}', "t.json: this is a suite file", "give a file of tasks"),
    listed("a text", '"x"', "t.json: it holds a text; allowed: a list of tasks, one task"),
    listed("items of a wrong kind", '{"items": {}}', "t.json: items is a object; it must be a list of tasks"),
    listed("an item of a wrong kind", '{"items": [{"id": 1, "question": "q"}, 7]}', "t.json[1]: a task is an object"),
    tasks("an env that nobody has", '{"id": 1, "question": "q", "env": "maht"}', "t.jsonl: task '1': env is 'maht'; ",
          "did you mean math?; a task may name: osworld, math"),
    tasks("an evaluator that is a number", '{"id": 1, "instruction": "q", "evaluator": 3}', "t.jsonl:1: task '1'",
          "evaluator is a number; it must be an object", command=DESK),
    tasks("a set-up that is no list", '{"id": 1, "instruction": "q", "config": {}}', "t.jsonl:1: task '1': config must",
          "a list of set-up steps", command=DESK),
    tasks("a set-up step that is a text", '{"id": 1, "instruction": "q", "config": ["open"]}', "config must be a list",
          "each an object with type", command=DESK),
    tasks("env_config of a wrong type", '{"id": 1, "instruction": "q", "env_config": {"proxy": "maybe"}}',
          "t.jsonl: task '1': env_config", "proxy and fixed_ip are true or false", command=DESK),
    tasks("env_config with a field that has no effect",
          '{"id": 1, "instruction": "q", "env_config": {"proxy": false, "screen_width": 800}}',
          "t.jsonl: task '1': env_config.screen_width: there is no such field", "allowed: snapshot, proxy, fixed_ip",
          command=DESK),
    tasks("env_config that is a list", '{"id": 1, "instruction": "q", "env_config": []}',
          "t.jsonl: task '1': env_config must be an object", command=DESK),
    tasks("a snapshot that is not there", '{"id": 1, "instruction": "q", "env_config": {"snapshot": "x"}}',
          "t.jsonl: task '1' on a desktop of provider sim", "snapshot is 'x'; allowed", command=DESK),
]  # fmt: skip

CONFIGS = [
    Case("config: no file", YAML, ("c.yaml: there is no such file",)),
    Case("config: a folder", YAML, ("c.yaml: it cannot be read: Is a directory",), {"c.yaml": None}),
    Case("config: suffix", "run --config c.json", ("c.json: the suffix is '.json'; allowed: .yaml",), {"c.json": "{}"}),
    config("nothing in it", "", "no tasks are given: name a file of tasks"),
    config("a list", "- a\n- b\n", "c.yaml: it holds a list; allowed: fields with their values"),
    config("an unknown field", f"{CONFIG}num_rolouts: 3\n", "c.yaml:4: num_rolouts", "did you mean num_rollouts?"),
    config("a wrong type", f"{CONFIG}num_rollouts: many\n", "c.yaml:4: num_rollouts", "integer", "(it is 'many')"),
    config("out of range", f"{CONFIG}num_rollouts: 0\n", "c.yaml:4: num_rollouts", "greater than or equal to 1"),
    config("two equal keys", f"{CONFIG}num_vms: 1\nnum_vms: 2\n", "c.yaml:5: num_vms is there twice, first on line 4"),
    config("no YAML", f"{CONFIG}limits: {{a: [}}\n", "c.yaml:4: it is not valid YAML"),
    config("no UTF-8", b"tasks: \xff\n", "c.yaml: byte 7 is not UTF-8; save the file as UTF-8"),
    config("its tasks are not there", CONFIG.replace("t.j", "u.j"), "u.jsonl: there is no such file"),
    config("too many reserved", f"{CONFIG}reserved: {{eval: 9}}\n", "c.yaml",
           "reserved asks for 9, and num_rollouts is 5", "reserve fewer"),
    config("less than none reserved", f"{CONFIG}reserved: {{eval: -1}}\n", "c.yaml:4: reserved.eval", "or equal to 0"),
    config("all reserved for others", f"{CONFIG}reserved: {{train: 5}}\n", "reserved keeps 5 of 5", "reserve fewer"),
    Case("config: no TOML", TOML, ("c.toml:2: it is not valid TOML",), {"c.toml": 'env = "math"\ntasks =\n'}),
    Case("config: two equal keys in TOML", TOML, ("c.toml:2:", "overwrite"), {"c.toml": 'env = "a"\nenv = "b"\n'}),
    Case("config: an unknown field in TOML", TOML, ("c.toml:3: limits.max_turn", "did you mean max_turns?"),
         {"c.toml": 'tasks = "t.jsonl"\n[limits]\nmax_turn = 3\n'}),
    Case("config: a wrong type in TOML", TOML, ("c.toml:3: limits.max_turns", "integer"),
         {"c.toml": 'tasks = "t.jsonl"\n[limits]\nmax_turns = "x"\n'}),
    Case("config: .env is not UTF-8", MATH, (".env: it is not UTF-8; save the file as UTF-8",), {".env": b"\xff=3"}),
]  # fmt: skip

FLAGS = [
    Case("flags: no tasks", "run --env math", ("no tasks are given", "e.g. deskroll run tasks.jsonl")),
    flags("no such flag", "--num-rollout 3", "No such option '--num-rollout'", "--num-rollouts"),
    flags("digits of another script", "--num-rollouts ５", "'--num-rollouts': '５' is no number"),
    flags("no number", "--num-rollouts x", "'--num-rollouts': 'x' is not a valid integer"),
    flags("out of range", "--num-rollouts 0", "deskroll: --num-rollouts: input should be", "equal to 1 (it is 0)\n"),
    flags("limit", "--limit 0", "--limit: input should be greater than or equal to 1"),
    flags("group size", "--group-size -1", "--group-size: input should be greater than or equal to 1"),
    flags("--set without a value", "--set num_vms", "--set num_vms: it gives no value; write it as field"),
    flags("--set of an unknown field", "--set limits.max_turn=3", "limits.max_turn", "did you mean max_turns?"),
    flags("--set below a text", "--set env.x=3", "--set env.x: env is not a mapping", "set env as a whole"),
    flags("--set without a name", "--set =3", "deskroll: --set =: it names no setting; write it as field"),
    flags("an empty name", "--run-id=", "--run-id is empty: give a name, or leave it out"),
    flags("--set of no YAML", "--set limits={", "--set limits: the value is not valid YAML", "quote it"),
    flags("--force alone", "--force", "--force belongs to --resume"),
    flags("--resume with a config", "--resume results --config c.yaml", "change single ones with --set"),
    flags("env", "--env maths", "there is no env 'maths'; did you mean math?"),
    flags("env by a path to no module", "--env nope.mod:Env", "there is no module 'nope'", "PYTHONPATH"),
    flags("env that is none", "--env deskroll.envs.math:evaluate", "is not a valid env: it is not made from"),
    flags("agent", "--agent chta", "there is no agent 'chta'; did you mean chat?"),
    flags("agent that is none", "--agent deskroll.envs.math:MathEnv", "is not a valid agent: it is not made from"),
    flags("provider", "--provider simm", "there is no provider 'simm'; did you mean sim?", command=DESK),
    flags("provider that is not needed", "--provider simm", "there is no provider 'simm'; did you mean sim?"),
    flags("env option of a wrong kind", "--set env_options.screen_width=wide", "env_options (env osworld)",
          "screen_width: input should be a valid integer", command=DESK),
    flags("env option that is unknown", "--set env_options.screen_widht=9", "did you mean screen_width?", command=DESK),
    flags("env option out of its values", "--set env_options.evaluation_metric=f1", "evaluation_metric", "exact_match"),
    flags("agent option", "--set agent_options.max_image=1", "agent_options (agent chat): max_image", "max_images?"),
    flags("provider option", "--set provider_options.bot=1", "provider_options (provider sim)", "no such field",
          "allowed: boot", command=DESK),
    flags("provider option of a wrong kind", "--set provider_options.boot=fast", "boot: 'fast' is not a time; allowed",
          command=DESK),
    flags("min_vms", "--set min_vms=9", "min_vms is 9; allowed: 0 to num_vms (3)"),
    flags("run_id with slashes", "--set run_id=a/b", "run_id: a run's name has letters, digits", "(it is 'a/b')"),
    flags("run_id that leads upward", "--set run_id=..", "run_id: a run's name has letters"),
    flags("metrics without a token", "--set metrics=127.0.0.1:0", "metrics needs a token: set DESKROLL_TOKEN"),
    flags("metrics address", "--set metrics=here", "metrics is 'here'; write HOST:PORT", DESKROLL_TOKEN="t"),
    flags("metrics on a socket", "--set metrics=unix:/x", "metrics is 'unix:/x'; write HOST:PORT", DESKROLL_TOKEN="t"),
    flags("output_dir below a file", "--output-dir t.jsonl/x", "t.jsonl/x", "a file of that name is in the way",
          "choose another output folder"),
    flags("output_dir without a bucket", "--output-dir s3://", "--output-dir: it names no place; write a folder"),
    flags("pool address", "--set pool=there", "pool: 'there' is not an address; write unix:PATH", command=DESK),
    flags("base_url", "--base-url localhost:8000", "base_url is not an HTTP address; write it like"),
    flags("log level", "", "DESKROLL_LOG is 'verbose'; allowed: debug, info, warning, error", DESKROLL_LOG="verbose"),
    flags("a password in base_url", f"--base-url http://me:{SECRET}@host/v1", "give the key as $OPENAI_API_KEY"),
]  # fmt: skip

MODELS = [
    flags("script that is not there", "--model scripted:no.yaml", "model.name is 'scripted:", "there is no such file"),
    flags("script without a name", "--model scripted:", "model.name is 'scripted:'", "write scripted:FILE"),
    script("field", 'replies:\n  - turns:\n      - {txt: "42"}\n', "s.yaml:3: replies.0.turns.0.txt",
           "did you mean text?"),
    script("no list", "replies: 3\n", "s.yaml:1: replies: input should be a list (it is 3)"),
    script("no YAML", 'replies:\n  - turns: [{text: "42"}\n', "s.yaml:3: it is not valid YAML"),
    script("kind of fault", f"faults: {{kinds: [404]}}\n{SCRIPT}", "s.yaml:1: faults.kinds.0", "'429', '500'"),
    Case("model: nobody listens", f"{MATH} --model m --base-url http://127.0.0.1:9/v1",
         ("model m at http://127.0.0.1:9/v1: no connection",
          "(is the server up?); set OPENAI_BASE_URL (or model.base_url, --base-url)")),
]  # fmt: skip

FOLDERS = [
    Case("run: it exists already", f"{MATH} --set run_id=one", ("results/one holds a run already: resume it",),
         {"results/one/run.json": "{}"}),
    folder("nothing there", {}, "d is not a run and holds none", "Name the folder of a run"),
    folder("an empty folder", {"d": None}, "d is not a run and holds none", "Name the folder of a run"),
    folder("some other folder", {"d/notes.txt": "x"}, "d is not a run and holds none", "Name the folder of a run"),
    folder("a file", {"d": "x"}, "d is a file, and no run; name the folder of a run"),
    folder("several runs", {"d/a/run.json": '{"run_id": "a"}', "d/b/run.json": '{"run_id": "b"}'}, "d holds 2 runs",
           "name one of them", "d/a", "d/b"),
    folder("a torn run.json", {"d/run.json": '{"run_id":'}, "d/run.json cannot be read", "restore it"),
    folder("an empty run.json", {"d/run.json": ""}, "d/run.json cannot be read", "restore it"),
    folder("no config in run.json", {"d/run.json": '{"run_id": "d"}'}, "d/run.json: it holds no config", "restore it"),
    folder("a broken config in run.json", {"d/run.json": '{"run_id": "d", "config": {"num_vms": "x"}}'},
           "d/run.json: num_vms: input should be a valid integer"),
]  # fmt: skip

TABLE = [*TASKS, *CONFIGS, *FLAGS, *MODELS, *FOLDERS]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with good tasks and a good script."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "t.jsonl").write_text(TASK)
    (made / "s.yaml").write_text(SCRIPT)
    return made


def write(place: Path, files: Mapping[str, str | bytes | None]) -> None:
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def assert_refused(ended: Ended, *words: str) -> None:
    """Exit code 2, one message, with these words."""
    assert ended.code == 2, ended
    assert ended.out == ""
    assert "Traceback" not in ended.err
    usage = ended.err.startswith("Usage: deskroll ")
    assert ended.err.count("Error: " if usage else "deskroll: ") == 1, ended.err
    assert usage or ended.err.startswith("deskroll: "), "nothing comes before the message"
    assert [each for each in words if each not in ended.err] == [], ended.err
    assert SECRET not in ended.err


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_it_is_refused_with_one_message(case: Case, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write(place, case.files)
    before = sorted(place.rglob("*"))
    ended = deskroll(*case.command.split(), cwd=place, env={**env, **case.env})
    assert_refused(ended, *case.words)
    assert [path for path in sorted(place.rglob("*")) if path not in before and path.name != ".lock"] == []


def test_an_empty_output_dir_is_not_the_root_of_the_disk(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*MATH.split(), "--output-dir", "", "--dry-run", cwd=place, env=env)
    assert_refused(ended, "--output-dir: it names no place; write a folder")


@pytest.mark.parametrize("case", [TASKS[3], CONFIGS[5], FLAGS[1]], ids=lambda case: case.name)
def test_the_same_from_a_process_of_its_own(case: Case, place: Path, env: dict[str, str]) -> None:
    write(place, case.files)
    command = [sys.executable, "-m", "deskroll", *case.command.split()]
    found = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    assert [each for each in case.words if each not in found.stderr] == []


@pytest.mark.parametrize("at", ["127.0.0.1:9", "unix:/nowhere/pool.sock"])
def test_a_pool_where_nobody_listens(at: str, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*DESK.split(), "--set", f"pool={at}", cwd=place, env=env)
    assert_refused(ended, "no pool answers at", at, "start one:  deskroll pool serve")


async def test_a_model_server_that_refuses_the_key(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    async with ScriptedServer(Script.replying("42"), token="another") as server:
        command = [*MATH.split(), "--model", "m", "--base-url", server.url]
        with_key = await asyncio.to_thread(deskroll, *command, cwd=place, env={**env, "OPENAI_API_KEY": SECRET})
        without = await asyncio.to_thread(deskroll, *command, cwd=place, env=env)
    assert_refused(with_key, "model m at http://127.0.0.1:", "status 401", "key is not accepted")
    assert_refused(without, "status 401", "no key is set: set api_key, or $OPENAI_API_KEY")


def test_a_byte_order_mark_is_no_mistake(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    (place / "t.jsonl").write_bytes(b"\xef\xbb\xbf" + TASK.encode())
    ended = deskroll(*MATH.split(), "--dry-run", "--json", cwd=place, env=env)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["tasks"] == 1


# --- runs that are to go on ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(deskroll: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two tasks that has come to its end."""
    made = tmp_path_factory.mktemp("finished")
    write(made, {"t.jsonl": TASK + OTHER, "s.yaml": SCRIPT})
    env = clean_environment(tmp_path_factory.mktemp("runtime"))
    ended = deskroll(*MATH.split(), "--set", "run_id=one", "--set", "backend=inline", cwd=made, env=env)
    assert ended.code == 0, ended.err
    return made


@pytest.fixture
def ended_run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    made = tmp_path / "copy"
    shutil.copytree(finished, made)
    info = made / "results/one/run.json"
    info.write_text(info.read_text().replace(str(finished), str(made)))
    return made


def damage_journal(place: Path) -> None:
    path = place / "results/one/journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2][:20] + "\n", *lines[3:]]))


def rewrite_tasks(text: str) -> Callable[[Path], object]:
    return lambda place: (place / "t.jsonl").write_text(text)


CHANGES = [
    ("damaged journal", damage_journal, "", ("journal.jsonl, line 3: it is not what", "restore the file")),
    ("changed task", rewrite_tasks(TASK + OTHER.replace("6", "5")), "", ("task 'b' has changed", "with --force")),
    ("removed task", rewrite_tasks(TASK), "", ("task 'b' is gone", "with --force")),
    ("new task", rewrite_tasks(TASK + OTHER + TASK.replace('"a"', '"c"')), "", ("task 'c' is new", "with --force")),
    ("no tasks", lambda place: (place / "t.jsonl").unlink(), "", ("t.jsonl: there is no such file",)),
    ("no script", lambda place: (place / "s.yaml").unlink(), "", ("s.yaml', and there is no such file (",)),
    ("limit", lambda place: None, "--max-turns 3", ("limits.max_turns was 50 and is 3", "with --force")),
    ("model", lambda place: None, "--set model.temperature=0.5", ("model.temperature was None and is 0.5",)),
    ("group size", lambda place: None, "--group-size 2", ("group_size was 1 and is 2", "start a new run, or")),
]


@pytest.mark.parametrize(("spoil", "more", "words"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_a_run_that_cannot_go_on_as_it_was_begun(
    spoil: Callable[[Path], object],
    more: str,
    words: tuple[str, ...],
    deskroll: Commands,
    ended_run: Path,
    env: dict[str, str],
) -> None:
    spoil(ended_run)
    before = outcomes(ended_run)
    ended = deskroll("run", "--resume", "results/one", *more.split(), cwd=ended_run, env=env)
    assert_refused(ended, *words)
    assert outcomes(ended_run) == before, "nothing is lost by it"


def outcomes(place: Path) -> list[tuple[str, str, float]]:
    lines = map(json.loads, (place / "results/one/results.jsonl").read_text().splitlines())
    return [(line["task_id"], line["answer"], line["score"]) for line in lines]


@pytest.mark.parametrize("text", [TASK + OTHER.replace("6", "5"), TASK], ids=["changed", "removed"])
def test_a_resume_that_is_refused_leaves_the_results_alone(
    text: str, deskroll: Commands, ended_run: Path, env: dict[str, str]
) -> None:
    rewrite_tasks(text)(ended_run)
    results = ended_run / "results/one/results.jsonl"
    before = results.read_bytes()
    assert_refused(deskroll("run", "--resume", "results/one", cwd=ended_run, env=env), "task 'b'")
    assert results.read_bytes() == before


@pytest.mark.parametrize("more", ["", "--group-size 2"])
def test_a_changed_task_or_group_goes_on_by_force(
    more: str, deskroll: Commands, ended_run: Path, env: dict[str, str]
) -> None:
    rewrite_tasks(TASK + OTHER.replace("6", "5"))(ended_run)
    ended = deskroll("run", "--resume", "results/one", "--force", *more.split(), cwd=ended_run, env=env)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("more", ["--max-turns 3", "--num-rollouts 2"])
def test_it_goes_on_by_force_or_where_it_makes_no_difference(
    more: str, deskroll: Commands, ended_run: Path, env: dict[str, str]
) -> None:
    forced = ["--force"] if "turns" in more else []
    ended = deskroll("run", "--resume", "results/one", *more.split(), *forced, cwd=ended_run, env=env)
    assert ended.code == 0, ended.err
    assert "2/2 done" in ended.err


def test_a_new_task_is_run_by_force(deskroll: Commands, ended_run: Path, env: dict[str, str]) -> None:
    rewrite_tasks(OTHER + TASK.replace('"a"', '"c"'))(ended_run)
    ended = deskroll("run", "--resume", "results/one", "--force", cwd=ended_run, env=env)
    assert ended.code == 0, ended.err
    lines = (ended_run / "results/one/results.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["task_id"] for line in lines) == ["b", "c"], "a is planned no more"


def test_a_torn_last_line_of_the_journal_is_no_damage(deskroll: Commands, ended_run: Path, env: dict[str, str]) -> None:
    path = ended_run / "results/one/journal.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    ended = deskroll("run", "--resume", "results/one", cwd=ended_run, env=env)
    assert ended.code == 0, ended.err


def test_a_run_that_is_live_cannot_be_resumed(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    (place / "s.yaml").write_text(f"latency: 60\n{SCRIPT}")
    command = [sys.executable, "-m", "deskroll", *MATH.split(), "--set", "run_id=live"]
    with subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as live:
        wait_until(lambda: '"type":"started"' in journal(place / "results/live"), "the run is live")
        ended = deskroll("run", "--resume", "results/live", cwd=place, env=env)
        live.send_signal(signal.SIGTERM)
        live.communicate(timeout=30)
    assert_refused(
        ended, "run results/live is live, in process", str(live.pid), "deskroll status results/live", "--stop"
    )
    assert live.returncode == 130


def journal(run: Path) -> str:
    path = run / "journal.jsonl"
    return path.read_text() if path.exists() else ""
