"""`deskroll tasks ls|show|check`, and which tasks `deskroll run` takes."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from deskroll.tasks import load_tasks
from deskroll.tasks.needs import needs_of
from tests.commands import Commands, Ended
from tests.tasks.shared import OSWORLD, needs_osworld

STEPS = [{"type": "launch", "parameters": {"command": ["xterm"]}}]
EVALUATOR = {"func": "infeasible"}


def lay_out(root: Path, **more: dict[str, Any]) -> None:
    """A suite of three tasks, and whatever else the tasks say, by id."""
    named = {"os": ["b1"], "office": ["c1", "c2"]}
    apps = {"b1": ["terminal"], "c1": ["Calc"], "c2": ["calc", "no_such_program"]}
    for domain, ids in named.items():
        (root / "examples" / domain).mkdir(parents=True)
        for each in ids:
            task = {"id": each, "instruction": f"do\n{each}", "related_apps": apps[each], "snapshot": "x"}
            task |= {"config": STEPS, "evaluator": EVALUATOR} | more.get(each, {})
            (root / "examples" / domain / f"{each}.json").write_text(json.dumps(task))
    (root / "all.json").write_text(json.dumps(named))


class Shell:
    """Commands in one folder."""

    def __init__(self, commands: Commands, folder: Path, env: dict[str, str]) -> None:
        self._commands, self._folder, self._env = commands, folder, env

    def __call__(self, *args: str) -> Ended:
        return self._commands(*args, cwd=self._folder, env=self._env)

    def json(self, *args: str) -> Any:
        ended = self(*args, "--json")
        assert ended.code in (0, 1), ended.err
        return json.loads(ended.out)


@pytest.fixture
def shell(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> Shell:
    return Shell(deskroll, tmp_path, env)


def test_tasks_are_listed(shell: Shell, tmp_path: Path) -> None:
    lay_out(tmp_path)
    ended = shell("tasks", "ls", "all.json")
    assert ended.code == 0, ended.err
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    assert ["b1", "os", "terminal", "do", "b1"] in rows
    assert rows[-1] == ["3", "tasks"]
    listed = shell.json("tasks", "ls", "all.json", "--domain", "office", "--app", "libreoffice_calc")
    assert listed[0] == {"id": "c1", "domain": "office", "apps": ["libreoffice_calc"], "instruction": "do\nc1"}
    assert [each["id"] for each in listed] == ["c1", "c2"]


def test_one_task_is_shown_whole(shell: Shell, tmp_path: Path) -> None:
    lay_out(tmp_path, b1={"hint": "[bold]look\x1b[31m"})
    ended = shell("tasks", "show", "all.json", "b")
    assert ended.code == 0, ended.err
    for said in ("terminal", "set-up 0", '"command":["xterm"]', "evaluator.func", "infeasible", "[bold]look", "needs"):
        assert said in ended.out
    assert "\x1b" not in ended.out
    shown = shell.json("tasks", "show", "examples", "b1")
    assert (shown["domain"], shown["setup"], shown["needs"]["apps"]) == ("os", STEPS, ["terminal"])
    assert "there is no task 'z'" in shell("tasks", "show", "all.json", "z").err


@pytest.mark.parametrize("command", ["ls", "check"])
def test_a_selection_that_fits_nothing_is_refused(shell: Shell, tmp_path: Path, command: str) -> None:
    lay_out(tmp_path)
    ended = shell("tasks", command, "all.json", "--domain", "offices")
    assert ended.code == 2
    assert "there is no domain 'offices'; did you mean office?; there are: office (2), os (1)" in ended.err
    assert "there is no suite 'nope'" in shell("tasks", command, "suite:nope").err


def test_a_check_says_what_is_missing(shell: Shell, tmp_path: Path) -> None:
    lay_out(tmp_path)
    found = shell.json("tasks", "check", "all.json", "--provider", "local", "--offline")
    by_id = {each["id"]: each for each in found["tasks"]}
    assert "no_such_program is not on this machine: install no_such_program" in by_id["c2"]["why_not"]
    assert not any("no_such_program" in why for why in by_id["c1"]["why_not"])
    totals = found["totals"]
    assert (totals["provider"], totals["tasks"], totals["apps"]["libreoffice_calc"]) == ("local", 3, 2)
    assert totals["snapshots"] == {"x": 3}
    ended = shell("tasks", "check", "all.json", "--provider", "local", "--offline", "--domain", "office")
    assert ended.code == 1
    assert "no_such_program" in ended.out
    assert "of 2 tasks can run here, on provider local." in ended.out


def test_a_check_ends_with_the_line_that_installs_what_debian_has(shell: Shell, tmp_path: Path) -> None:
    absent = [app for app in ("picard", "thunderbird", "vlc", "gimp") if shutil.which(app) is None]
    if not absent:
        pytest.skip("all of these programs are on this machine")
    task = {"id": "t", "instruction": "i", "related_apps": absent, "evaluator": {"func": "infeasible"}}
    more = {"id": "u", "instruction": "i", "related_apps": [absent[0], "vs_code"], "evaluator": {"func": "infeasible"}}
    (tmp_path / "few.json").write_text(json.dumps([task, more]))
    command = ("tasks", "check", "few.json", "--provider", "local", "--offline")
    found = shell.json(*command)
    line = found["totals"]["install"]
    assert line.startswith("apt-get install -y --no-install-recommends ")
    assert set(line.split()[4:]) == set(found["tasks"][0]["packages"]) == set(absent)
    assert found["totals"]["with_packages"] == 1
    said = shell(*command).out
    assert f"Debian has programs with which 1 more task could run. As root:\n\n    {line}\n" in said
    assert "vs_code is not on this machine: install Microsoft's package" in said


def test_a_run_says_at_its_start_which_programs_are_not_there(shell: Shell, tmp_path: Path) -> None:
    absent = [app for app in ("picard", "thunderbird", "vlc", "gimp") if shutil.which(app) is None]
    if not absent:
        pytest.skip("all of these programs are on this machine")
    judged = {"instruction": "i", "evaluator": {"func": "infeasible"}}
    tasks = [{"id": "t", "related_apps": [absent[0]], **judged}, {"id": "u", "related_apps": ["os"], **judged}]
    (tmp_path / "few.json").write_text(json.dumps(tasks))
    line = (
        f"1 of 2 tasks needs programs that are not on this machine, and will fail: {absent[0]}; "
        f"as root: apt-get install -y --no-install-recommends {absent[0]}"
    )
    command = ("run", "few.json", "--agent", "noop", "--provider", "local")
    assert line in shell.json(*command, "--dry-run", "--json")["advice"]
    assert line in " ".join(shell(*command, "--dry-run").out.split())
    started = shell(*command, "--output-dir", "few.json")  # no folder: refused before any desktop starts
    assert line in " ".join(started.err.split())
    elsewhere = shell.json("run", "few.json", "--agent", "noop", "--provider", "sim", "--dry-run", "--json")
    assert not [each for each in elsewhere["advice"] if "programs" in each]


def test_a_check_takes_the_runs_options(shell: Shell, tmp_path: Path) -> None:
    lay_out(tmp_path)
    drive = {"id": "d", "instruction": "i", "config": [{"type": "googledrive", "parameters": {
        "operation": ["delete"], "args": [{"query": "x", "trash": False}],
    }}], "evaluator": {"func": "infeasible"}}  # fmt: skip
    (tmp_path / "drive.json").write_text(json.dumps(drive))
    key = {"client_id": "a", "client_secret": "b", "refresh_token": "c"}
    (tmp_path / "key.json").write_text(json.dumps(key))
    (tmp_path / "account.json").write_text(json.dumps({"email": "me@example.com", "password": "x"}))
    command = ("tasks", "check", "drive.json", "--provider", "local", "--offline")
    options = ("google_account=account.json", "google_drive=key.json")
    given = [part for each in options for part in ("--set", f"env_options.{each}")]
    without, with_it = shell.json(*command)["tasks"][0], shell.json(*command, *given)["tasks"][0]
    assert "it needs an account (googledrive)" in without["why_not"]
    assert not any("account" in why for why in with_it["why_not"])
    assert "env_options" in shell(*command, "--set", "env_options.nope=1").err


def test_tasks_that_nothing_judges_are_told(shell: Shell, tmp_path: Path) -> None:
    """Before they are run: by the check and by the run itself; and the reason of the score says what is missing."""
    (tmp_path / "t.jsonl").write_text(
        '{"id": "q", "instruction": "do it"}\n{"id": "r", "question": "6*7?", "answer": "42"}\n'
    )
    (checked, other) = shell.json("tasks", "check", "t.jsonl", "--provider", "sim")["tasks"]
    assert checked["notes"] == ["it has neither an answer nor an evaluator, so that there will be no score"]
    assert other.get("notes", []) == []
    ended = shell("run", "t.jsonl", "--agent", "noop", "--provider", "sim", "--num-vms", "1", "--set", "backend=inline")
    assert ended.code == 1, ended.err
    told = "1 of 2 tasks has neither an answer nor an evaluator, so that there will be no score: q\n"
    assert told in ended.err.partition("run 2")[0]
    assert "No score for 1: the task has neither an evaluator nor a reference answer\n" in ended.out
    unwanted = shell("run", "t.jsonl", "--agent", "noop", "--provider", "sim", "--set", "evaluate=false", "--dry-run")
    assert (unwanted.code, "there will be no score" in unwanted.out) == (0, False)


def test_an_environment_that_scores_by_itself_needs_no_answer(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "q", "instruction": "do it"}\n')
    (tmp_path / "mine.py").write_text(
        "from deskroll.envs.math import MathEnv\nfrom deskroll.types import Score\n\n\n"
        "class Mine(MathEnv):\n    async def score(self, ending):\n        return Score(value=1.0, reason='always')\n"
    )
    ended = shell("run", "t.jsonl", "--env", "mine.py:Mine", "--agent", "noop", "--set", "backend=inline")
    assert (ended.code, "there will be no score" in ended.err) == (0, False), ended.err


def test_simulated_desktops_run_no_programs(shell: Shell, tmp_path: Path) -> None:
    lay_out(tmp_path)
    found = shell.json("tasks", "check", "all.json", "--provider", "sim", "--offline")
    assert found["totals"]["can_run"] == 0
    assert all("simulates its desktops" in each["why_not"][0] for each in found["tasks"])


def test_files_count_where_their_host_answers_or_the_cache_has_them(shell: Shell, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        gold = {"type": "cloud_file", "path": f"http://127.0.0.1:{port}/gold", "dest": "gold.csv"}
        lay_out(tmp_path, b1={"evaluator": {"func": "infeasible", "expected": gold}})

        def refusals(*args: str) -> list[str]:
            task = shell.json("tasks", "check", "all.json", "--task", "b1", *args)["tasks"][0]
            assert [each["name"] for each in task["needs"]["downloads"]] == ["gold.csv"]
            return [why for why in task["why_not"] if "cache" in why]

        assert refusals() == []
        assert refusals("--offline") == [f"files from 127.0.0.1:{port} are not in the cache"]
    with socket.socket() as nobody:  # bound, so that nobody else has the port, and nobody listens
        nobody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        nobody.bind(("127.0.0.1", port))
        assert refusals() == [f"files from 127.0.0.1:{port} are not in the cache, and it does not answer"]
    (tmp_path / "kept" / "b1").mkdir(parents=True)
    (tmp_path / "kept" / "b1" / "gold.csv").write_text("1,2")
    assert refusals("--cache", "kept") == []


def test_tasks_without_a_desktop_need_no_provider(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "question": "1+1?", "answer": "2"}')
    ended = shell("tasks", "check", "t.jsonl", "--env", "math", "--offline")
    assert ended.code == 0, ended.err
    assert "1 of 1 task can run here" in ended.out
    assert "there is no env 'maht'" in shell("tasks", "check", "t.jsonl", "--env", "maht").err


@needs_osworld
def test_all_of_upstreams_tasks_are_checked(shell: Shell) -> None:
    for source, count in ((OSWORLD / "test_all.json", 369), (OSWORLD / "examples_windows", 49)):
        found = shell.json("tasks", "check", str(source), "--provider", "local", "--offline")
        tasks = load_tasks(source)
        assert len(found["tasks"]) == found["totals"]["tasks"] == count == len(tasks)
        infeasible = sum(needs_of(each).infeasible for each in tasks)
        assert found["totals"]["needs"]["infeasible"] == infeasible
        for each in found["tasks"]:
            assert each["can_run"] is not bool(each["why_not"]), each["id"]
    assert found["totals"]["can_run"] == 0, "those are for Windows"


# --- deskroll run ----------------------------------------------------------------------------------------

ADD = [{"id": f"{domain}{n}", "question": "1+1?", "answer": "2", "domain": domain, "related_apps": [domain]}
       for domain in ("one", "two") for n in range(2)]  # fmt: skip


@pytest.fixture
def sums(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "t.json").write_text(json.dumps(ADD))
    (tmp_path / "t.script.yaml").write_text("replies: [{turns: [{text: '2'}]}]\n")
    return ("run", "t.json", "--env", "math", "--model", "scripted", "--set", "run_id=r")


def attempted(folder: Path) -> list[str]:
    return sorted(json.loads(line)["task_id"] for line in (folder / "results/r/results.jsonl").read_text().splitlines())


@pytest.mark.parametrize(
    ("flags", "taken"),
    [
        (("--domain", "two"), ["two0", "two1"]),
        (("--task", "one1", "--task", "two0"), ["one1", "two0"]),
        (("--app", "two", "--limit", "1"), ["two0"]),
        (("--set", "only={domains: [one], ids: [one1]}"), ["one1"]),
    ],
)
def test_a_run_takes_the_tasks_that_are_selected(
    shell: Shell, sums: tuple[str, ...], tmp_path: Path, flags: tuple[str, ...], taken: list[str]
) -> None:
    ended = shell(*sums, *flags)
    assert ended.code == 0, ended.err
    assert attempted(tmp_path) == taken


def test_a_run_of_nothing_is_refused(shell: Shell, sums: tuple[str, ...]) -> None:
    ended = shell(*sums, "--domain", "three")
    assert ended.code == 2
    assert "t.json: there is no domain 'three'; there are: one (2), two (2)" in ended.err


def test_a_resume_goes_on_with_the_same_tasks(shell: Shell, sums: tuple[str, ...], tmp_path: Path) -> None:
    assert shell(*sums, "--domain", "one").code == 0
    assert shell("run", "--resume", "results/r").code == 0
    assert attempted(tmp_path) == ["one0", "one1"]
    ended = shell("run", "--resume", "results/r", "--domain", "two")
    assert ended.code == 2
    assert "task 'one0' is gone" in ended.err
    assert "task 'two0' is new" in ended.err


def test_a_run_takes_a_suite_with_its_root(
    shell: Shell, deskroll: Commands, env: dict[str, str], sums: tuple[str, ...], tmp_path: Path
) -> None:
    for each in ADD:
        file = tmp_path / "there" / str(each["domain"]) / f"{each['id']}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(each))
    (tmp_path / "t.json").write_text('{"two": ["two1"], "one": ["one0"]}')
    assert "tasks_root" in shell(*sums).err
    ended = shell(*sums, "--set", "tasks_root=there")
    assert ended.code == 0, ended.err
    assert attempted(tmp_path) == ["one0", "two1"]
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Shell(deskroll, tmp_path / "elsewhere", env)
    assert elsewhere("run", "--resume", "../results/r").code == 0, "the root holds from everywhere"
