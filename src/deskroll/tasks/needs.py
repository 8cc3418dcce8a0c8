"""What a task needs, read from what it says: files, the live web, accounts, programs, rights.

Pure: nothing is looked up or asked. It knows OSWorld's format; a task of another kind needs nothing of all this. What
only the agent will need (a page that the instruction merely talks about) cannot be told from a file.
"""

from __future__ import annotations

import enum
import json
import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from deskroll.tasks.apps import OF_COMMANDS, app_of, app_of_program
from deskroll.tasks.select import related_apps
from deskroll.types import Record, Task


class Need(enum.StrEnum):
    """The kinds of needs, as totals count them."""

    SETUP_DOWNLOAD = "setup_download"
    """Files that are fetched before the agent begins."""
    EVALUATOR_DOWNLOAD = "evaluator_download"
    """Reference files that its result is compared with."""
    POSTCONFIG_DOWNLOAD = "postconfig_download"
    """Files that are fetched after the agent has ended."""
    LIVE_WEB = "live_web"
    """Pages that its set-up opens in the desktop's browser."""
    LIVE_WEB_EVALUATOR = "live_web_evaluator"
    """Pages that its evaluator reads through the desktop's browser."""
    BROWSER_STATE = "browser_state"
    """The evaluator looks at the pages that the desktop's browser shows."""
    INSTALLS = "installs"
    """Its steps install packages from the network."""
    ACCOUNT = "account"
    """An account at somebody's service."""
    SUDO = "sudo"
    """The password of the desktop's user."""
    SESSION = "session"
    """Parts of a full desktop session: GNOME, systemd, PulseAudio."""
    PROXY = "proxy"
    """It asks for the provider's proxy."""
    FIXED_IP = "fixed_ip"
    """It asks for an address that never changes."""
    WINDOWS = "windows"
    """A Windows desktop."""


class Download(Record, frozen=True):
    """A file that this machine fetches for a task."""

    url: str
    when: Need
    name: str
    """What it is called in the task's folder of OSWorld's cache (`cache/<task id>/`)."""

    @property
    def host(self) -> str:
        """Who has it."""
        return host_of(self.url)


class Needs(Record, frozen=True):
    """All that a task needs."""

    downloads: tuple[Download, ...] = ()
    pages: tuple[str, ...] = ()
    """Addresses of the live web."""
    accounts: tuple[str, ...] = ()
    """Services that it logs in to."""
    apps: tuple[str, ...] = ()
    """Programs that it is about, and others that its steps start."""
    session: tuple[str, ...] = ()
    """Parts of a desktop session."""
    installers: tuple[str, ...] = ()
    """What installs packages from the network: apt, pip."""
    snapshot: str = ""
    """The state of a machine that it names. As upstream does, a run uses its own (`snapshot_name`)."""
    infeasible: bool = False
    """Whether it cannot be done, and saying so is the solution."""
    kinds: tuple[Need, ...] = ()


def host_of(url: str) -> str:
    """The host of an address, with its port if it names one; empty where it has none."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def needs_of(task: Task) -> Needs:
    """What a task needs."""
    said = _Said.of(task)
    programs = [app_of_program(name).name for name in _marked(said.commands, _PROGRAM)]
    files = [
        *_files(said.steps, Need.SETUP_DOWNLOAD),
        *_files(said.after, Need.POSTCONFIG_DOWNLOAD),
        *_cloud_files(said.getters),
    ]
    snapshot = task.metadata.get("snapshot")
    needs = Needs(
        downloads=tuple(dict.fromkeys(files)),
        pages=tuple(dict.fromkeys([*_pages_opened(said.steps), *_pages_read(said.getters)])),
        accounts=_accounts(said.steps, said.getters),
        apps=tuple(dict.fromkeys([*related_apps(task), *programs])),
        session=_marked(said.commands, _SESSION),
        installers=_marked(said.commands, _INSTALLERS),
        snapshot=snapshot if isinstance(snapshot, str) else "",
        infeasible=task.evaluator.get("func") == "infeasible",
    )
    return msgspec.structs.replace(needs, kinds=_kinds(task, said, needs))


def _kinds(task: Task, said: _Said, needs: Needs) -> tuple[Need, ...]:
    found = {
        **{each.when: True for each in needs.downloads},
        Need.LIVE_WEB: bool(_pages_opened(said.steps)),
        Need.LIVE_WEB_EVALUATOR: bool(_pages_read(said.getters)),
        Need.BROWSER_STATE: any(each.get("type") in _BROWSER for each in said.getters),
        Need.INSTALLS: bool(needs.installers),
        Need.ACCOUNT: bool(needs.accounts),
        Need.SUDO: any(_SUDO.search(each) for each in said.commands),
        Need.SESSION: bool(needs.session),
        Need.PROXY: _is_true(task.metadata.get("proxy")),
        Need.FIXED_IP: _is_true(task.metadata.get("fixed_ip")),
        Need.WINDOWS: _is_windows(task),
    }
    return tuple(each for each in Need if found.get(each))


_SESSION = {
    "GNOME": re.compile(r"\borg\.gnome\.|\bgnome-(?!terminal)"),
    "systemd": re.compile(r"\b(?:timedatectl|systemctl|hostnamectl|loginctl)\b"),
    "PulseAudio": re.compile(r"\b(?:pactl|pacmd|pulseaudio)\b"),
}
_PROGRAM = {name: re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])") for name in OF_COMMANDS}
_INSTALLERS = {
    "apt": re.compile(r"\b(?:apt|apt-get|snap)\s+(?:-\S+\s+)*(?:install|update)\b"),
    "pip": re.compile(r"\bpip3?\s+install\s+(?![/.~])"),
}
"""A file that pip installs needs no network."""
_SUDO = re.compile(r"\bsudo\b|\{CLIENT_PASSWORD\}")
_DRIVE = re.compile(r"\b[a-z]:\\+(?:users|program|windows)", re.IGNORECASE)
_BROWSER = frozenset({
    "active_url_from_accessTree", "active_tab_html_parse", "active_tab_url_parse", "active_tab_info", "open_tabs_info",
    "chrome_appearance_mode_ui", "url_dashPart", "url_path_parse", "gotoRecreationPage_and_get_html_content",
})  # fmt: skip
_READS_PAGES = {"page_info": "url", "pdf_from_url": "path", "info_from_website": "url"}
_ELSEWHERE = {"gotoRecreationPage_and_get_html_content": "https://www.recreation.gov/"}
"""Getters whose page is written in upstream's code."""

_Values = Mapping[str, Any]


@dataclass(frozen=True)
class _Said:
    """The parts of a task that needs are read from."""

    steps: list[_Values]
    after: list[_Values]
    """Steps that are performed when the agent has ended."""
    getters: list[_Values]
    commands: list[str]
    """Of all of them."""

    @classmethod
    def of(cls, task: Task) -> _Said:
        steps, after = _steps(task.setup), _steps(task.evaluator.get("postconfig"))
        getters = [*_getters(task.evaluator.get("result")), *_getters(task.evaluator.get("expected"))]
        commands = [text for step in (*steps, *after, *_as_steps(getters)) for text in _commands(step)]
        return cls(steps, after, getters, commands)


def _marked(commands: Sequence[str], marks: Mapping[str, re.Pattern[str]]) -> tuple[str, ...]:
    return tuple(name for name, mark in marks.items() if any(mark.search(each) for each in commands))


def _is_true(value: object) -> bool:
    """OSWorld's files hold some booleans as texts."""
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def _steps(value: object) -> list[_Values]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


def _getters(value: object) -> list[_Values]:
    """Of one or of several; a list may hold empty places."""
    return [value] if isinstance(value, Mapping) else _steps(value)


def _as_steps(getters: Iterable[_Values]) -> Iterator[_Values]:
    return ({"type": "execute", "parameters": each} for each in getters if "command" in each)


def _of_step(steps: Iterable[_Values], kind: str, name: str) -> list[Any]:
    """All that is listed under one parameter of steps of one kind."""
    parameters = [step.get("parameters") for step in steps if step.get("type") == kind]
    return [each for given in parameters if isinstance(given, Mapping) for each in _list(given.get(name))]


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _files(steps: Iterable[_Values], when: Need) -> Iterator[Download]:
    for each in _of_step(steps, "download", "files"):
        url, path = (each.get("url"), each.get("path")) if isinstance(each, Mapping) else (None, None)
        if isinstance(url, str) and isinstance(path, str) and host_of(url):  # without one it comes with the task
            yield Download(url=url, when=when, name=f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{posixpath.basename(path)}")


def _cloud_files(getters: Iterable[_Values]) -> Iterator[Download]:
    for each in getters:
        if each.get("type") == "cloud_file":
            for url, dest in zip(_list(each.get("path")), _list(each.get("dest")), strict=False):
                if host_of(str(url)):  # without one it comes with the task
                    yield Download(url=str(url), when=Need.EVALUATOR_DOWNLOAD, name=str(dest))


def _web(addresses: Iterable[object]) -> list[str]:
    """Those that are not on the desktop itself; a browser takes an address without its scheme, too."""
    found = []
    for each in addresses:
        if not isinstance(each, str) or re.match(r"(?:file|chrome|about|data):", each):
            continue
        url = each if "://" in each else f"https://{each}"
        if host_of(url).partition(":")[0] not in ("", "localhost", "127.0.0.1"):
            found.append(url)
    return found


def _pages_opened(steps: Iterable[_Values]) -> list[str]:
    return _web(_of_step(steps, "chrome_open_tabs", "urls_to_open"))


def _pages_read(getters: Iterable[_Values]) -> list[str]:
    named = [path for each in getters for path in _list(each.get(_READS_PAGES.get(str(each.get("type")), "")))]
    return [*_web(named), *(_ELSEWHERE[kind] for each in getters if (kind := str(each.get("type"))) in _ELSEWHERE)]


def _accounts(steps: Sequence[_Values], getters: Iterable[_Values]) -> tuple[str, ...]:
    drive = any(step.get("type") == "googledrive" for step in steps)
    drive = drive or any(each.get("type") == "googledrive_file" for each in getters)
    platforms = [str(each) for each in _of_step(steps, "login", "platform")]
    return tuple(dict.fromkeys([*(["googledrive"] if drive else []), *platforms]))


def _commands(step: _Values) -> Iterator[str]:
    """The command of a step as one text. What Python code says is no command: it mostly types and clicks."""
    parameters = step.get("parameters")
    command = parameters.get("command") if isinstance(parameters, Mapping) else None
    words = [str(each) for each in _list(command)]
    if words and not words[0].startswith("python"):
        yield " ".join(words)


def _is_windows(task: Task) -> bool:
    said = json.dumps([task.setup, task.evaluator])
    return bool(_DRIVE.search(said)) or any(app_of(each).windows for each in related_apps(task))
