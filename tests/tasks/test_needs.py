"""What tasks need: one by one, and all of upstream's against the counts that were made of them before."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from deskroll.tasks import load_tasks, parse_task
from deskroll.tasks.needs import Download, Need, Needs, needs_of
from tests.tasks.shared import OSWORLD, needs_osworld

HUB = "https://hub.example/files/a.xlsx"


def needs(**task: Any) -> Needs:
    return needs_of(parse_task({"id": "t", "instruction": "do it", **task}, "here"))


def step(kind: str, **parameters: object) -> dict[str, object]:
    return {"type": kind, "parameters": parameters}


def run(command: object, **more: object) -> dict[str, object]:
    return step("execute", command=command, **more)


def test_a_task_that_needs_nothing() -> None:
    assert needs() == Needs()
    assert needs(answer="4", related_apps=[]) == Needs()


def test_files_by_when_they_are_fetched_and_what_the_cache_calls_them() -> None:
    fetch = step("download", files=[{"url": HUB, "path": "/home/user/b.xlsx"}])
    gold = {"type": "cloud_file", "path": [HUB, f"{HUB}2"], "dest": ["gold.xlsx", "more.xlsx"], "multi": True}
    found = needs(config=[fetch], evaluator={"postconfig": [fetch], "expected": [None, gold], "result": {}})
    cached = f"{uuid.uuid5(uuid.NAMESPACE_URL, HUB)}_b.xlsx"
    assert found.downloads == (
        Download(url=HUB, when=Need.SETUP_DOWNLOAD, name=cached),
        Download(url=HUB, when=Need.POSTCONFIG_DOWNLOAD, name=cached),
        Download(url=HUB, when=Need.EVALUATOR_DOWNLOAD, name="gold.xlsx"),
        Download(url=f"{HUB}2", when=Need.EVALUATOR_DOWNLOAD, name="more.xlsx"),
    )
    assert found.kinds == (Need.SETUP_DOWNLOAD, Need.EVALUATOR_DOWNLOAD, Need.POSTCONFIG_DOWNLOAD)
    assert {each.host for each in found.downloads} == {"hub.example"}


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ({"config": [step("chrome_open_tabs", urls_to_open=["https://a.example/x"])]}, Need.LIVE_WEB),
        ({"config": [step("chrome_open_tabs", urls_to_open=["a.example"])]}, Need.LIVE_WEB),
        ({"config": [step("chrome_open_tabs", urls_to_open=["http://localhost:8000/", "chrome://settings"])]}, None),
        ({"config": [step("chrome_open_tabs", urls_to_open=["file:///home/user/a.html"])]}, None),
        ({"evaluator": {"result": {"type": "page_info", "url": "https://a.example"}}}, Need.LIVE_WEB_EVALUATOR),
        ({"evaluator": {"result": {"type": "active_tab_info"}}}, Need.BROWSER_STATE),
        ({"config": [step("googledrive", operation=["delete"])]}, Need.ACCOUNT),
        ({"config": [step("login", platform="googledrive")]}, Need.ACCOUNT),
        ({"evaluator": {"result": {"type": "googledrive_file"}}}, Need.ACCOUNT),
        ({"config": [run("echo {CLIENT_PASSWORD} | su", shell="true")]}, Need.SUDO),
        ({"evaluator": {"result": {"type": "vm_command_line", "command": ["sudo", "ls"]}}}, Need.SUDO),
        ({"config": [run("pip install pygame", shell=True)]}, Need.INSTALLS),
        ({"config": [run("pip install /home/user/a.whl", shell=True)]}, None),
        ({"config": [run(["/bin/bash", "-c", "apt-get -y install jq-not"])]}, Need.INSTALLS),
        ({"config": [run("gsettings get org.gnome.shell favorite-apps")]}, Need.SESSION),
        ({"config": [run(["timedatectl", "status"])]}, Need.SESSION),
        ({"config": [run(["python", "-c", "pyautogui.write('sudo apt install gimp')"])]}, None),
        ({"proxy": True}, Need.PROXY),
        ({"proxy": "true"}, Need.PROXY),
        ({"proxy": False, "fixed_ip": "false"}, None),
        ({"fixed_ip": True}, Need.FIXED_IP),
        ({"config": [step("open", path="C:\\Users\\User\\a.docx")]}, Need.WINDOWS),
        ({"related_apps": ["ppt"]}, Need.WINDOWS),
        ({"config": [run("try:\\n  a\\nexcept E as e:\\n  b")]}, None),
    ],
)
def test_kinds_of_needs(task: Mapping[str, Any], kind: Need | None) -> None:
    assert needs(**task).kinds == (() if kind is None else (kind,))


def test_programs_are_named_by_apps_and_by_commands() -> None:
    chrome = step("launch", command=["google-chrome", "--remote-debugging-port=1337"])
    found = needs(related_apps=["vscode", "libreoffice calc"], config=[chrome, step("launch", command=["socat", "a"])])
    assert found.apps == ("vs_code", "libreoffice_calc", "chrome", "socat")
    assert needs(related_apps="Chrome").apps == ("chrome",)
    assert needs(config=[run("pkill chrome; ls my-gimp gimp.txt")]).apps == ()
    assert needs(related_apps=["mousepad"]).apps == ("mousepad",), "what is unknown is a program's name"


@pytest.mark.parametrize(
    "odd",
    [
        {"config": [{}, {"type": 3}, step("download", files="x"), step("download", files=[3, {"url": 4}])]},
        {"config": [{"type": "execute", "parameters": "ls"}, run(None), run([]), run({"a": 1})]},
        {"config": [step("chrome_open_tabs", urls_to_open=[None, 7, "http://[bad"])]},
        {"evaluator": {"postconfig": {}, "result": [None, 3, "x"], "expected": 7, "func": []}},
        {"evaluator": {"expected": {"type": "cloud_file", "path": None, "dest": ["x"]}}},
        {"related_apps": {"a": 1}, "snapshot": 3, "proxy": []},
        {"related_apps": [None, 3, "", " "]},
    ],
)
def test_odd_tasks_need_nothing_and_break_nothing(odd: Mapping[str, Any]) -> None:
    assert needs(**odd).kinds == ()


# --- upstream's own --------------------------------------------------------------------------------------

COUNTED_AS = {
    "config_download": Need.SETUP_DOWNLOAD,
    "eval_download": Need.EVALUATOR_DOWNLOAD,
    "post_download": Need.POSTCONFIG_DOWNLOAD,
    "live_web_setup": Need.LIVE_WEB,
    "live_web_eval": Need.LIVE_WEB_EVALUATOR,
    "browser_state_eval": Need.BROWSER_STATE,
    "google_account": Need.ACCOUNT,
}
"""What the counts beside the task files call a need, and what it is here."""
DIFFERENCES = {
    # It has no download step: upstream's `update_browse_history` fetches an empty history of its own.
    "config_download": {"44ee5668-ecd5-4366-a6ce-c1c9b8d4e938"},
}
NOT_COUNTED_HERE = {"config_cmd_url"}
"""An address inside a command (a start page that the task is about): nothing fetches it."""


@needs_osworld
def test_the_counts_are_those_that_were_made_before() -> None:
    stats = json.loads((OSWORLD / "task_stats.json").read_text())
    found = {each.id: needs_of(each) for each in load_tasks(OSWORLD / "test_all.json")}
    assert set(stats["needs_counts"]) == {*COUNTED_AS, *NOT_COUNTED_HERE}
    for name, kind in COUNTED_AS.items():
        before = {task.partition("/")[2] for task, named in stats["needs_by_task"].items() if name in named}
        assert before ^ {task for task, its in found.items() if kind in its.kinds} == DIFFERENCES.get(name, set())
    urls = {each.url for its in found.values() for each in its.downloads}
    assert len(urls) == stats["n_distinct_download_urls"]
    assert sum(its.infeasible for its in found.values()) == stats["infeasible"]["count"]
    kinds = [kind for its in found.values() for kind in its.kinds]
    assert (kinds.count(Need.PROXY), kinds.count(Need.FIXED_IP)) == (52, 8)
    assert (kinds.count(Need.SUDO), kinds.count(Need.WINDOWS)) == (10, 0)


@needs_osworld
def test_what_a_plain_desktop_lacks_is_found() -> None:
    stats = json.loads((OSWORLD / "task_stats.json").read_text())
    named = stats["all_inputs_inside_json"]["curated"]["needs_gnome_or_pulseaudio_or_systemd"]
    found = {each.id: needs_of(each) for each in load_tasks(OSWORLD / "test_all.json")}
    missed = {each.partition("/")[2] for each in named} - {task for task, its in found.items() if its.session}
    # The size of its terminal is read from the screen: no command names GNOME.
    assert missed == {"13584542-872b-42d8-b299-866967b5c3ef"}


@needs_osworld
def test_windows_is_told_from_linux() -> None:
    found = [needs_of(each) for each in load_tasks(OSWORLD / "examples_windows")]
    assert [each for each in found if Need.WINDOWS not in each.kinds] == []
