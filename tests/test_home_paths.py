"""`~` in a path means the same folder wherever it is written, and a run lies in one place."""

from pathlib import Path

import pytest
import yaml

from deskroll.config import check
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.rag.settings import RagSettings
from deskroll.envs.web.settings import WebSettings
from deskroll.errors import StoreError
from deskroll.host.home import expand_home
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.config import RunConfig
from deskroll.rollout.orders import WorkerSetup
from deskroll.store import Run, Storage
from tests.commands import Commands

TASK = '{"id": "a", "question": "6*7?", "answer": "42"}\n'
SCRIPT = 'replies: [{turns: [{text: "42"}]}]\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with a file of tasks and a script in it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "t.jsonl").write_text(TASK)
    (folder / "s.yaml").write_text(SCRIPT)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("given", ["flag", "file"])
def test_a_run_with_a_home_folder_in_its_output_is_whole(
    given: str, deskroll: Commands, home: Path, elsewhere: Path, env: dict[str, str]
) -> None:
    env = {**env, "HOME": str(home)}
    if given == "flag":
        command = ["~/t.jsonl", "--env=math", "--model=scripted:~/s.yaml", "--output-dir=~/runs", "--set=run_id=one"]
    else:
        settings = {
            "tasks": "~/t.jsonl", "env": "math", "model": {"name": "scripted:~/s.yaml"}, "output_dir": "~/runs",
            "run_id": "one",
        }  # fmt: skip
        (home / "c.yaml").write_text(yaml.safe_dump(settings))
        command = ["--config=~/c.yaml"]
    ended = deskroll("run", *command, cwd=elsewhere, env=env)
    assert ended.code == 0, ended.err
    run = Run.open(home / "runs/one")
    assert len(run.outcomes()) == 1
    assert run.verify() == []
    again = deskroll("run", "--resume=~/runs/one", cwd=elsewhere, env=env)
    assert again.code == 0, again.err
    ended = deskroll("report", "~/runs/one", "--csv=~/episodes.csv", cwd=elsewhere, env=env)
    assert ended.code == 0, ended.err
    assert (home / "episodes.csv").exists()
    assert list(elsewhere.iterdir()) == []


def test_every_setting_that_names_a_place_is_expanded(env: dict[str, str]) -> None:
    home = str(Path.home())
    config = check(
        RunConfig,
        {"tasks": "~/t", "tasks_root": "~/r", "output_dir": "~/o", "provider_options": {"path_to_vm": "~/vm.vmx"}},
        "settings",
    )
    found = [config.tasks, config.tasks_root, config.output_dir, config.provider_options["path_to_vm"]]
    rag = check(RagSettings, {"corpus": "~/c", "cache": "~/k"}, "rag")
    desk = check(OSWorldSettings, {"cache_dir": "~/c", "google_account": "~/g", "google_drive": "~/d"}, "osworld")
    web = check(WebSettings, {"mirror": "~/m"}, "web")
    found += [str(rag.corpus), str(rag.cache), desk.cache_dir, desk.google_account, desk.google_drive, web.mirror]
    assert [each for each in found if not each.startswith(f"{home}/")] == []
    assert desk.browser_profile.startswith("~"), "that one is a place in the desktop"
    assert Storage.at("~/x").root == f"{home}/x"


@pytest.mark.parametrize("path", ["s3://~/x", "./~/x", "a/~", "~nobody-of-this-name/x", "results", ""])
def test_what_no_shell_would_expand_stays_as_it_is(path: str) -> None:
    assert expand_home(path) == path


async def test_attempts_are_not_written_where_the_journal_is_not(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"stray holds no run.json: the run's journal lies elsewhere"):
        async with InlineBackend(WorkerSetup(storage=str(tmp_path / "stray"))):
            raise AssertionError("it must not begin")
