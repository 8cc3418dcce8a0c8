"""Where an exception in somebody's own agent, environment or tool came from: kept, named, told, without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from deskroll.actions import ToolCall
from deskroll.agents.base import Agent, AgentContext
from deskroll.config import Settings
from deskroll.envs.base import Ending
from deskroll.envs.math import MathEnv
from deskroll.envs.tooled import ToolFunction
from deskroll.report.html import write_html
from deskroll.report.results import Results
from deskroll.rollout.redaction import MASK, masked_text
from deskroll.types import Decision, Episode, Observation, Record, Score, Task
from tests.commands import Commands
from tests.rollout.conftest import ANSWER, Runs, questions, script, until

HERE = "tests.rollout.test_traces"


class BrokenOptions(Settings):
    """A secret, as agents of one's own have."""

    service_token: str = ""


class BrokenAgent(Agent):
    """Fails two calls deep, and says a secret on its way."""

    Settings: ClassVar[type[BrokenOptions]] = BrokenOptions

    def __init__(self, around: AgentContext, settings: BrokenOptions) -> None:
        if around.task is not None and around.task.metadata.get("fails") == "made":
            raise LookupError("cannot be made")
        self.settings = settings

    async def act(self, observation: Observation) -> Decision:
        return self.look_up({})

    def look_up(self, table: Mapping[str, Decision]) -> Decision:
        return table[f"no entry for {self.settings.service_token}"]


class BrokenEnv(MathEnv):
    """Fails where the task's metadata says."""

    async def reset(self) -> Observation:
        self._fail("reset")
        return await super().reset()

    async def score(self, ending: Ending) -> Score:
        self._fail("score")
        return await super().score(ending)

    async def close(self) -> None:
        self._fail("close")

    def _fail(self, where: str) -> None:
        if self.task.metadata.get("fails") == where:
            raise ArithmeticError(f"in {where}")


class Nothing(Record, frozen=True):
    """No arguments."""


async def _stumble(given: Nothing) -> str:
    raise IndexError("the tool's own bug")


class ToolAgent(BrokenAgent):
    """Calls the tool, and calls it again."""

    async def act(self, observation: Observation) -> Decision:
        return Decision(actions=(ToolCall(name="stumble", arguments={}, call_id="1"),))


class BrokenTools(MathEnv):
    """Has a tool with a bug."""

    def functions(self) -> Mapping[str, ToolFunction]:
        return {"stumble": ToolFunction("stumble", "Stumbles.", Nothing, _stumble)}


async def failed(runs: Runs, tasks: Sequence[Task], **fields: object) -> tuple[Episode, str]:
    """The episode of a run that fails, and what is kept of why."""
    (episode,) = await runs.run(script(ANSWER), tasks, **({"retries": {"setup": 0, "evaluator": 0}} | fields))
    assert episode.failure is not None
    assert episode.failure.trace == "error.txt"
    attempt = runs.read().attempt(episode.key, episode.attempt)
    assert attempt.verify() == []
    return episode, attempt.read("error.txt").decode()


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_an_agents_traceback_is_kept_and_named(runs: Runs, backend: str) -> None:
    episode, trace = await failed(runs, questions(1), agent=f"{HERE}:BrokenAgent", backend=backend, workers=1)
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "in act\n    return self.look_up({})" in trace
    assert "KeyError: 'no entry for '" in trace
    assert "src/deskroll/" not in trace, "how deskroll came to call it is of no interest"
    folder = f"{runs.folder}/run/episodes/eval/0/task-0/0/{episode.attempt}"
    stored = json.loads(Path(folder, "episode.json").read_text())
    assert stored["failure"]["trace"] == "error.txt"
    assert "error.txt" in [each["name"] for each in stored["files"]]


@pytest.mark.parametrize(("where", "blamed"), [("reset", "env"), ("score", "evaluator"), ("made", "agent")])
async def test_a_traceback_of_the_environment_its_evaluation_and_making_the_agent(
    runs: Runs, where: str, blamed: str
) -> None:
    agent = f"{HERE}:BrokenAgent" if where == "made" else "tests.rollout.parts:AnsweringAgent"
    episode, trace = await failed(runs, questions(1, fails=where), env=f"{HERE}:BrokenEnv", agent=agent)
    assert episode.failure is not None
    assert episode.failure.failure_class == blamed
    assert "test_traces.py" in trace
    assert trace.rstrip().endswith(("in reset", "in score", "cannot be made"))


async def test_what_was_waited_for_when_the_time_was_over(runs: Runs) -> None:
    _, trace = await failed(
        runs, questions(1, fails="slow setup"), env="tests.rollout.parts:FailingEnv", limits={"setup_timeout": 0.1}
    )
    assert "in reset\n    await asyncio.sleep(3600)" in trace


async def test_what_was_raised_on_purpose_needs_no_traceback(runs: Runs) -> None:
    (episode,) = await runs.run(script({"text": ""}), questions(1))
    assert episode.failure is not None
    assert (episode.failure.failure_class, episode.failure.trace) == ("agent", "")
    assert "error.txt" not in runs.read().attempt(episode.key, 1).files()


async def test_what_is_not_the_end_of_it_is_kept_too(runs: Runs) -> None:
    (episode,) = await runs.run(script(ANSWER), questions(1, fails="close"), env=f"{HERE}:BrokenEnv")
    assert (episode.failure, episode.score.value) == (None, 1.0)
    assert b"ArithmeticError: in close" in runs.read().attempt(episode.key, 1).read("close-error.txt")


async def test_a_tools_bug_is_not_told_to_the_model_as_its_mistake(runs: Runs) -> None:
    episode, trace = await failed(runs, questions(1), env=f"{HERE}:BrokenTools", agent=f"{HERE}:ToolAgent")
    assert episode.failure is not None
    assert (episode.failure.failure_class, episode.score.value, episode.attempt) == ("env", None, 2)
    assert "in _stumble\n" in trace
    assert trace.rstrip().endswith("IndexError: the tool's own bug")


async def test_no_secret_is_kept_of_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "of-the-environment")
    options = {"service_token": "of-the-environment and-the-options"}
    episode, trace = await failed(runs, questions(1), agent=f"{HERE}:BrokenAgent", agent_options=options)
    assert f"no entry for {MASK}" in trace
    left = "".join(path.read_text() for path in Path(runs.folder).rglob("*") if path.is_file())
    assert "and-the-options" not in left
    assert episode.failure is not None
    assert MASK in episode.failure.message


async def test_the_working_folder_is_no_secret(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PWD", "OLDPWD"):
        monkeypatch.setenv(name, str(Path(__file__).parent))
    _, trace = await failed(runs, questions(1), agent=f"{HERE}:BrokenAgent")
    assert f'File "{__file__}"' in trace


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('headers = {"Authorization": "Bearer abcdefghijkl"}', f'headers = {{"Authorization": "{MASK}"}}'),
        ("Cookie: sid=abc; session=deadbeef\nnext", f"Cookie: {MASK}\nnext"),
        ('password: "my secret pass" n', f'password: "{MASK}" n'),
        ("Authorization: Token abcdef123456", f"Authorization: {MASK}"),
        ("sent Bearer abcdef.ghijkl to x", f"sent Bearer {MASK} to x"),
        ("api_key='hush', n=3", f"api_key='{MASK}', n=3"),
        ("os.environ['MY_TOKEN'] = 'hush'", f"os.environ['MY_TOKEN'] = '{MASK}'"),
        ("401 from https://me:hush@host/x?token=hush&n=1", f"401 from https://{MASK}@host/x?token={MASK}&n=1"),
        ("Incorrect API key: sk-abcdefghijklmnop1234", f"Incorrect API key: {MASK}"),
        ("keys = ['a', 'b']; monkey = 'a'", "keys = ['a', 'b']; monkey = 'a'"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, kept: str) -> None:
    assert masked_text(text) == kept


# --- told ------------------------------------------------------------------------------------------------


async def test_inline_it_is_shown(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "deskroll"):
        await failed(runs, questions(1), agent=f"{HERE}:BrokenAgent")
    assert "return self.look_up({})" in caplog.text
    assert "run/episodes/eval/0/task-0/0/1/error.txt" in caplog.text


async def test_of_many_alike_a_worker_tells_of_one(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "deskroll"):
        await runs.run(script(ANSWER), questions(6), agent=f"{HERE}:BrokenAgent", backend="process", workers=1)
        await until(lambda: "error.txt" in caplog.text, "it is told")
    assert caplog.text.count("the traceback is in ") == 1
    assert "look_up" not in caplog.text


def test_the_terminal_and_the_page_say_where_it_is(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "m", "question": "6*7?", "answer": "42"}\n')
    command = ["run", "t.jsonl", "--env", "math", "--agent", "tests.rollout.parts:BrokenAgent"]
    (tmp_path / "s.yaml").write_text("replies: [{turns: [{text: x}]}]\n")
    more = ["--model", "scripted:s.yaml", "--set", "backend=inline", "--set", "run_id=one"]
    ended = deskroll(*command, *more, cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    at = "episodes/eval/0/m/0/1/error.txt"
    assert 'raise ZeroDivisionError("division by zero")' in ended.err
    assert f"traceback:  {tmp_path}/results/one/{at}\n" in ended.err
    results = Results.read(tmp_path / "results/one")
    write_html(results, results.summary(), tmp_path / "page.html")
    assert at in (tmp_path / "page.html").read_text()


# --- before anything is started --------------------------------------------------------------------------


class RefusingEnv(MathEnv):
    """Its own check has a bug."""

    @staticmethod
    def check_task(task: Task) -> None:
        assert task.metadata["level"]


def test_plug_ins_that_break_down_at_once_are_one_error_with_the_place(
    deskroll: Commands, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "m", "question": "6*7?", "answer": "42"}\n')
    (tmp_path / "typo.py").write_text("import os\n\nname = os.environ.fetch('X')\n")
    for flags, said in (
        (
            ["--agent", "typo:Agent"],
            ["agent 'typo:Agent': typo cannot be imported: AttributeError", 'typo.py", line 3'],
        ),
        (["--agent", "noop", "--env", f"{HERE}:RefusingEnv"], ["task 'm'", "KeyError: 'level'", "in check_task"]),
    ):
        refused = deskroll("run", "t.jsonl", *flags, "--dry-run", cwd=tmp_path, env=env)
        assert refused.code == 2
        assert [each for each in said if each not in refused.err] == []
        assert "src/deskroll" not in refused.err
