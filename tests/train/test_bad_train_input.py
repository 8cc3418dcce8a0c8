"""Bad input to `deskroll train`: one message that names the place and says what to do, exit code 2, nothing started."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.commands import Commands
from tests.models.weights.files import one_file
from tests.test_bad_input import TASK, assert_refused, write

OTHER = TASK.replace('"a"', '"b"')
GOOD = "train --trainer scripted --env math --tasks t.jsonl --eval-tasks e.jsonl"
FILE = "train c.yaml"
CONFIG = 'trainer: scripted\nmodel_name: "m"\nenv: math\ntasks: t.jsonl\neval_tasks: e.jsonl\n'
DESK = "train --trainer scripted --provider sim"
SERVED = 'models: {ckpt_path: good, vllm_command: "true"}\n'
"""What nearly all rows have below them: a program in the place of a server, which is never started."""
DEFAULTS = {"DESKROLL_TRAIN_CONFIG": "served.yaml"}
NO_DEFAULTS = {"DESKROLL_TRAIN_CONFIG": ""}


@dataclass(frozen=True)
class Case:
    """A command that must be refused."""

    name: str
    command: str
    words: tuple[str, ...]
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    """Beside good tasks (`t.jsonl`, `e.jsonl`) and weights (`good`); None is a folder."""
    env: Mapping[str, str] = field(default_factory=dict)


def flag(name: str, more: str, *words: str, command: str = GOOD, **env: str) -> Case:
    return Case(f"flags: {name}", f"{command} {more}", words, env=env)


def config(name: str, text: str, *words: str) -> Case:
    return Case(f"config: {name}", FILE, words, {"c.yaml": f"{CONFIG}{text}"})


def source(name: str, given: object, *words: str, command: str = DESK) -> Case:
    text = given if isinstance(given, str) else json.dumps(given)
    return Case(f"source: {name}", f"{command} --eval-tasks {shlex.quote(text)}", words)


FLAGS = [
    flag("no such flag", "--group-sizes 3", "No such option '--group-sizes'", "--group-size"),
    flag("with underscores, no such flag", "--group_sizes 3", "No such option '--group-sizes'"),
    flag("no number", "--groups-per-batch x", "'--groups-per-batch': 'x' is not a valid integer"),
    flag("digits of another script", "--steps ５", "'--steps': '５' is no number"),
    flag("below its range", "--max-concurrent-rollouts 0", "--max-concurrent-rollouts: input should be greater than"),
    flag("a group of one", "--group_size 1", "group_size is 1: a score says something beside others of its group"),
    flag("a name in no project", "--wandb-name first", "wandb_name names a run in a project; set wandb_project, too"),
    flag("no temperature", "--temperature 0", "--temperature: input should be greater than 0"),
    flag("a rate below 0", "--learning-rate -1", "--learning-rate: input should be greater than 0"),
    flag("too many at a time", "--max-concurrent-rollouts 99999", "is 399,996 episodes and desktops; set num_rollouts"),
    flag("staleness", "--staleness never", "--staleness: input should be 'pace', 'wait' or 'withhold'"),
    flag("advantage", "--advantage best", "--advantage: input should be 'centred' or 'grpo'"),
    flag("weight", "--weight word", "--weight: input should be 'episode', 'turn' or 'token'"),
    flag("policy", "--policy strict", "--policy: there is no policy 'strict'; there are fail_fast, fill_up"),
    flag("policy beyond the group", "--set policy.min_scored=9", "policy.min_scored is 9, and a group has 4"),
    flag("nothing to do", "--skip-baseline --baseline-only", "skip_baseline and baseline_only: nothing would be done"),
    flag("nothing at all", "--steps 0 --skip-baseline", "nothing would be done: there are neither steps to take"),
    flag("--set below a number", "--set steps.x=3", "--set steps.x", "valid integer"),
    flag("--set of an unknown field", "--set stepps=3", "--set stepps", "did you mean steps?"),
    flag("--set of a key", "--set run.model.api_key=sk-1", "other users see command lines"),
    flag("--resume with a config", "--resume results c.yaml", "change single ones with flags or --set"),
    flag("--resume with a folder", "--resume results --log-path x", "leave one of them out"),
    flag("env", "--env maths", "there is no env 'maths'; did you mean math?"),
    flag("agent", "--agent chta", "there is no agent 'chta'; did you mean chat?"),
    flag("agent without a model", "--agent noop", "agent noop asks no model, so that there is nothing to train"),
    flag("provider", "--provider simm", "there is no provider 'simm'; did you mean sim?"),
    flag("env option", "--set env_options.evaluation_metrik=x", "did you mean evaluation_metric?"),
    flag("agent option", "--set agent_options.max_image=1", "did you mean max_images?"),
    flag("log level", "", "DESKROLL_LOG is 'verbose'; allowed: debug, info", DESKROLL_LOG="verbose"),
]

TWICE = [
    config("temperature twice", "run: {model: {temperature: 0.5}}\n", "c.yaml:6: run:",
           "model.temperature is set by the field temperature"),
    config("num_rollouts twice", "num_rollouts: 3\nrun: {num_rollouts: 4}\n", "c.yaml:7: run:",
           "num_rollouts is set by the field num_rollouts"),
    flag("by --set", "--set run.limits.max_turns=3", "--set run.limits.max_turns:", "set by the field max_turns"),
    flag("output_dir", "--set run.output_dir=x", "output_dir is set by the field log_path"),
    config("not judged", "run: {evaluate: false}\n", "evaluate cannot be set here: training goes by scores"),
    config("not all tokens", "run: {model: {top_p: 0.9}}\n", "model.top_p is 0.9: in training every token may be"),
]  # fmt: skip

CONFIGS = [
    Case("config: no file", FILE, ("c.yaml: there is no such file",)),
    Case("config: suffix", "train c.json", ("c.json: the suffix is '.json'; allowed: .yaml",), {"c.json": "{}"}),
    config("an unknown field", "group_siz: 3\n", "c.yaml:6: group_siz", "did you mean group_size?"),
    config("a wrong type", "eval_every: often\n", "c.yaml:6: eval_every", "integer", "(it is 'often')"),
    config("two equal keys", "steps: 1\nsteps: 2\n", "c.yaml:7: steps is there twice, first on line 6"),
    config("an unknown field of run", "run: {num_vm: 3}\n", "c.yaml:6: run.num_vm", "did you mean num_vms?"),
    config("an unknown field of a source", "tasks: {source_type: demo_all, limt: 3}\n", "tasks is there twice"),
    config("models of a wrong kind", "models: {replicas: none}\n", "c.yaml:6: models.replicas", "integer"),
    Case("config: a source in a list", FILE, ("c.yaml:2: tasks.1.source_type", "'demo_training'"),
         {"c.yaml": "tasks: [{source_type: demo_all},\n  {source_type: demo}]\n"}),
    Case("config: the file of defaults is not there", GOOD, ("DESKROLL_TRAIN_CONFIG: no.yaml: there is no such file",),
         env={"DESKROLL_TRAIN_CONFIG": "no.yaml"}),
    Case("config: a mistake in the file of defaults", GOOD, ("DESKROLL_TRAIN_CONFIG: d.yaml:1: stps", "mean steps?"),
         {"d.yaml": "stps: 3\n"}, {"DESKROLL_TRAIN_CONFIG": "d.yaml"}),
]  # fmt: skip

SOURCES = [
    source("no JSON", "{source_type: demo_eval}", "--eval-tasks:1: it is not valid JSON, at column 2"),
    source("type", {"source_type": "demo"}, "--eval-tasks: eval_tasks.source_type", "'demo_eval'", "(it is 'demo')"),
    source("no type", {"limit": 3}, "eval_tasks.source_type: it is required, and missing"),
    source("limit", {"source_type": "demo_eval", "limit": 0}, "eval_tasks.limit", "greater than or equal to 1"),
    source("a field", {"source_type": "demo_eval", "lmit": 2}, "eval_tasks.lmit", "did you mean limit?"),
    source("a number", "[3]", "--eval-tasks", "eval_tasks.0"),
    source("none", "[]", "--eval-tasks: the list of sources is empty"),
    source("id", {"source_type": "ids", "task_ids": ["nope"]}, "eval_tasks: suite:desk: there is no task 'nope'"),
    source("no ids", {"source_type": "ids"}, "source_type ids needs task_ids"),
    source("category", {"source_type": "demo_eval", "category": "calc"}, "there is no category 'calc'", "terminal (4)"),
    source("difficulty", {"source_type": "demo_eval", "difficulty": "x"}, "there is no difficulty 'x'; there are:"),
    source("suite", {"source_type": "suite", "suite": "dsk"}, "eval_tasks: suite:dsk: there is no suite 'dsk'"),
    source("file", {"source_type": "file", "file_path": "no.jsonl"}, "eval_tasks:", "no.jsonl: there is no such file"),
    source("split", {"source_type": "ids", "task_ids": ["editor-write-note"], "split_type": "eval"}, "leaves none for"),
    source("trained on, too", {"source_type": "demo_all"}, "evaluation tasks are training tasks, too", "split_type"),
    source("twice", [{"source_type": "demo_eval"}, {"source_type": "demo_eval"}], "comes twice, from demo_eval and"),
    source("no judge", {"source_type": "custom", "custom_tasks": ["Open the clock"]}, "cannot judge itself",
           "--set run.judge.name=NAME"),
    source("instructions without a desktop", {"source_type": "custom", "custom_tasks": ["Say hi"]}, "evaluator",
           command=GOOD.partition(" --eval")[0]),
    Case("source: the default evaluation has no desktop", GOOD.partition(" --eval")[0],
         ("the default evaluation tasks are tasks on a desktop, and env is 'math'", "use_default_eval_tasks to false")),
    Case("source: tasks that nothing judges", GOOD, ("neither an answer nor an evaluator", "nothing to learn from"),
         {"t.jsonl": '{"id": "a", "question": "6*7?"}'}),
    Case("source: training tasks that are not JSON", GOOD, ("tasks: ", "t.jsonl:1: it is not valid JSON"),
         {"t.jsonl": "{"}),
]  # fmt: skip

MODELS = [
    flag("nobody takes the weights", "--model-name my-model", "nobody serves the model my-model with the weights of",
         "models.ckpt_path=DIR", "run.model.pool", **NO_DEFAULTS),
    flag("nobody serves it", "--model-name my-model --baseline-only", "nobody serves the model my-model:",
         "OPENAI_BASE_URL", **NO_DEFAULTS),
    flag("script that is not there", "--model-name scripted:no.yaml --baseline-only", "no.yaml", "no such file",
         **NO_DEFAULTS),
    flag("no weights to serve", "--set models.ckpt_path=nowhere", "models.ckpt_path", "nowhere is not there"),
    Case("models: a folder without weights", f"{GOOD} --set models.ckpt_path=m", ("models.ckpt_path:", "m"),
         {"m": None}),
    Case("models: weights that are torn", f"{GOOD} --set models.ckpt_path=m", ("models.ckpt_path:",
         "model.safetensors"), {"m/model.safetensors": b"\x08"}),
    flag("no weights to start from", "--load-checkpoint-path nowhere", "load_checkpoint_path", "nowhere is not there"),
    flag("here and elsewhere", "--set models.ckpt_path=m --set run.model.base_url=http://127.0.0.1:9/v1",
         "run.model.base_url says that it is elsewhere"),
    flag("its program", "--set models.ckpt_path=good --set models.vllm_command=no-such-vllm",
         "vllm_command names no-such-vllm"),
]  # fmt: skip

LACKING = """\
from deskroll.errors import MissingDependency
from deskroll.train.scripted import ScriptedTrainer


class Lacking(ScriptedTrainer):
    @classmethod
    def check_installed(cls):
        raise MissingDependency("Lacking needs torch: pip install torch")
"""
TRAINERS = [
    flag("no such trainer", "--trainer grpo", "there is no trainer 'grpo'; known: grpo-local, scripted"),
    flag("no trainer at all", "--trainer deskroll.envs.math:MathEnv", "is not a valid trainer: it is not made from"),
    flag("its file", "--trainer mine.py:Mine", "mine.py", "there is no file"),
    flag("its option", "--set trainer_options.second=3", "trainer_options (trainer scripted): second",
         "did you mean seconds?"),
    flag("its python", "--trainer-python no-such-python", "trainer_python names no-such-python"),
    Case("trainer: what it needs is not installed", f"{GOOD} --trainer mine.py:Lacking",
         ("Lacking needs torch: pip install torch",), {"mine.py": LACKING}),
]  # fmt: skip

FOLDERS = [
    Case("folder: somebody else's run", f"{GOOD} --log-path d", ("log_path: ", "is a run of deskroll.run"),
         {"d/run.json": '{"run_id": "d", "config": {"tasks": "t.jsonl"}}'}),
    Case("folder: a runtime's run", f"{GOOD} --log-path d", ("holds a run that is no training run",),
         {"d/run.json": '{"run_id": "d"}'}),
    Case("folder: somebody's files", f"{GOOD} --log-path d", ("log_path: ", "holds no run, and is not empty (no"),
         {"d/notes.txt": "x"}),
    Case("folder: below a file", f"{GOOD} --log-path t.jsonl/x", ("a file of that name is in the way", "another")),
    Case("folder: a torn run.json", f"{GOOD} --log-path d", ("d/run.json cannot be read",), {"d/run.json": "{"}),
    Case("resume: nothing there", "train --resume d", ("d is not a run and holds none",)),
    Case("resume: no training run", "train --resume d", ("d is no training run: it has no train.yaml",),
         {"d/run.json": '{"run_id": "d"}'}),
    Case("resume: settings that are torn", "train --resume d", ("d/train.yaml", "restore it"),
         {"d/run.json": '{"run_id": "d"}', "d/train.yaml": "a: ["}),
    Case("resume: settings that are none", "train --resume d", ("d/train.yaml: stps",),
         {"d/run.json": '{"run_id": "d"}', "d/train.yaml": "stps: 3"}),
]  # fmt: skip

TABLE = [*FLAGS, *TWICE, *CONFIGS, *SOURCES, *MODELS, *TRAINERS, *FOLDERS]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with good tasks and good weights."""
    made = tmp_path / "work"
    made.mkdir()
    write(made, {"t.jsonl": TASK, "e.jsonl": OTHER, "served.yaml": SERVED})
    (made / "good").mkdir()
    one_file(made / "good")
    return made


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_it_is_refused_with_one_message(case: Case, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write(place, case.files)
    before = sorted(place.rglob("*"))
    ended = deskroll(*shlex.split(case.command), cwd=place, env={**env, **DEFAULTS, **case.env})
    assert_refused(ended, *case.words)
    assert sorted(place.rglob("*")) == before


def test_there_are_enough_of_them_and_none_twice() -> None:
    assert len({case.name for case in TABLE}) == len(TABLE) >= 40


@pytest.mark.parametrize("command", [GOOD, FILE, f"{GOOD} --max_concurrent_rollouts 2 --skip_baseline"])
def test_what_the_rows_spoil_is_good(command: str, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    (place / "c.yaml").write_text(CONFIG)
    ended = deskroll(*shlex.split(command), "--dry-run", cwd=place, env={**env, **DEFAULTS})
    assert (ended.code, ended.err) == (0, "")
    assert "nothing was run (--dry-run)" in ended.out
