"""What `deskroll tasks check` finds out: what this machine and a provider have, and whether each task can run there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from deskroll.config import Settings
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.providers.choice import EMBEDDED, choose
from deskroll.envs import Env, env_kind, env_settings
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import bundled_files
from deskroll.envs.osworld.setup.accounts import drive_key, google_account
from deskroll.errors import DeskrollError, InputError, MissingDependency, SetupError
from deskroll.rollout.lacking import is_on_path, packages_line
from deskroll.store.paths import escape
from deskroll.tasks.needs import Download, Need, Needs, host_of, needs_of
from deskroll.tasks.reading import is_file
from deskroll.tasks.verdict import Place, Verdict, judge
from deskroll.types import Record, Task

_ASK_S = 4.0
"""The longest that hosts have to answer, all of them together."""
_MOST_HOSTS = 500
_SIMULATED = "sim"
_UNJUDGED = "it has neither an answer nor an evaluator, so that there will be no score"


class Checked(Record, frozen=True):
    """One task."""

    id: str
    domain: str
    can_run: bool
    why_not: tuple[str, ...]
    notes: tuple[str, ...]
    needs: Needs
    packages: tuple[str, ...] = ()
    """Debian's packages that bring what it lacks."""
    enough: bool = False
    """Whether it could run with them."""


class Totals(Record, frozen=True):
    """All of them."""

    provider: str
    tasks: int
    can_run: int
    by_domain: dict[str, tuple[int, int]]
    """Tasks, and how many of them can run."""
    needs: dict[str, int]
    """Tasks by what they need."""
    apps: dict[str, int]
    files: dict[str, int]
    """Different files to fetch, by host."""
    pages: dict[str, int]
    """Tasks that need the live web, by host."""
    snapshots: dict[str, int]
    """Tasks by the snapshot that they name, which no run uses."""
    why_not: dict[str, int]
    notes: dict[str, int]
    install: str
    """The line that installs what Debian has of all that is missing; empty where that is nothing."""
    with_packages: int
    """How many more could run then."""


class Options(Settings):
    """What of a run's settings decides whether a task can run."""

    env_options: dict[str, Any] = Field(default_factory=dict)


def survey(
    tasks: Sequence[Task],
    folder: Path,
    provider: str,
    env: str,
    cache_dir: Path,
    *,
    offline: bool,
    options: Mapping[str, Any] | None = None,
) -> list[Checked]:
    """Look at every task; `folder` is where files are that come with them, `options` are the run's `env_options`."""
    needs = {task.id: needs_of(task) for task in tasks}
    missing = {
        task_id: [each for each in of.downloads if not _is_cached(cache_dir, task_id, each)]
        for task_id, of in needs.items()
    }
    hosts = {each.host for of in missing.values() for each in of}
    hosts |= {host_of(page) for of in needs.values() for page in of.pages}
    kinds = {name: env_kind(name) for name in {env, *(task.env or env for task in tasks)}}
    # As in a run: a task of another kind than the run's own has that kind's defaults.
    settings = {
        name: env_settings(kind, dict(options or {}) if name == env else {}, name) for name, kind in kinds.items()
    }
    place = _places(provider, None if offline else _answering(hosts).__contains__, _accounts(settings[env]))
    return [
        _checked(task, needs[task.id], missing[task.id], (kinds[name], settings[name]), place, folder)
        for task in tasks
        for name in [task.env or env]
    ]


def totals(checked: Sequence[Checked], provider: str) -> Totals:
    """What they come to together."""
    domains = Counter(each.domain for each in checked)
    running = Counter(each.domain for each in checked if each.can_run)
    kinds = Counter(kind for each in checked for kind in each.needs.kinds)
    urls = {each.url for one in checked for each in one.needs.downloads}
    return Totals(
        provider=provider,
        tasks=len(checked),
        can_run=running.total(),
        by_domain={name: (count, running[name]) for name, count in sorted(domains.items())},
        needs={**{str(kind): kinds[kind] for kind in Need}, "infeasible": sum(x.needs.infeasible for x in checked)},
        apps=_ranked(app for each in checked for app in each.needs.apps),
        files=_ranked(host_of(url) for url in urls),
        pages=_ranked(host for each in checked for host in {host_of(page) for page in each.needs.pages}),
        snapshots=_ranked(each.needs.snapshot for each in checked if each.needs.snapshot),
        why_not=_ranked(why for each in checked for why in each.why_not),
        notes=_ranked(note for each in checked for note in each.notes),
        install=packages_line(_ranked(package for each in checked for package in each.packages)),
        with_packages=sum(each.enough for each in checked),
    )


def chosen(provider: str) -> str:
    """The name of the provider that a run would get."""
    return choose(provider, {}, os.environ).name


def _ranked(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _accounts(settings: Settings) -> frozenset[str]:
    """Where the options give an account: its drive is prepared with one, and its page is logged in at with another."""
    if not isinstance(settings, OSWorldSettings):
        return frozenset()
    try:
        google_account(settings)
        drive_key(settings)
    except SetupError:  # not given, or no such file
        return frozenset()
    return frozenset({"googledrive"})


def _checked(
    task: Task,
    needs: Needs,
    missing: Sequence[Download],
    env: tuple[type[Env], Settings],
    place: Callable[[], Place],
    folder: Path,
) -> Checked:
    kind, settings = env
    refused: tuple[str, ...] = ()
    try:
        kind.check_task(task)
        for file in bundled_files(task, folder):
            if not os.access(file, os.R_OK):
                raise InputError(f"{file} comes with it, and cannot be read")
        on_desktop = kind.desktop_spec(task, settings) is not None
    except DeskrollError as error:
        on_desktop, refused = bool(task.setup or task.evaluator), (str(error),)
    # A task of another kind needs nothing that is looked at here.
    found = judge(needs, missing, place()) if on_desktop else Verdict()
    why_not = (*found.why_not, *refused)
    notes = found.notes if kind.is_judged(task) else (*found.notes, _UNJUDGED)
    return Checked(
        id=task.id, domain=task.domain, can_run=not why_not, why_not=why_not, notes=notes, needs=needs,
        packages=found.packages, enough=found.enough and not refused,
    )  # fmt: skip


def _is_cached(cache_dir: Path, task_id: str, download: Download) -> bool:
    return is_file(cache_dir / escape(task_id) / download.name)


def _places(asked: str, reaches: Callable[[str], bool] | None, accounts: frozenset[str]) -> Callable[[], Place]:
    """Makes the place when the first task asks for it: where none needs a desktop, no provider is asked either."""

    @cache
    def place() -> Place:
        name = chosen(asked)
        provider = make_provider(name, {})
        embedded = name == EMBEDDED
        return Place(
            provider=name,
            has=is_on_path if embedded else None,
            reaches=reaches,
            problem=_problem() if embedded else "",
            real=name != _SIMULATED,
            embedded=embedded,
            network=_can(provider, DesktopSpec(network=True)),
            proxy=_can(provider, DesktopSpec(proxy=True)),
            fixed_ip=_can(provider, DesktopSpec(fixed_ip=True)),
            accounts=accounts,
        )

    return place


def _can(provider: Provider, spec: DesktopSpec) -> bool:
    try:
        provider.check_spec(spec)
    except (InputError, MissingDependency):
        return False
    return True


def _problem() -> str:
    from deskroll.desktops.providers.local.checks import run_checks  # noqa: PLC0415  (it starts programs)

    absent = [check.name for check in run_checks() if check.required and not check.ok]
    return f"embedded desktops cannot run here ({', '.join(absent)}): see deskroll doctor" if absent else ""


def _answering(hosts: Iterable[str]) -> set[str]:
    """Those of the hosts that take a connection. Threads, since looking up a name cannot be given up any other way."""
    asked = sorted(host for host in hosts if host)[:_MOST_HOSTS]
    found: set[str] = set()
    threads = [threading.Thread(target=_knock, args=(host, found), daemon=True) for host in asked]
    for each in threads:
        each.start()
    deadline = time.monotonic() + _ASK_S
    for each in threads:
        each.join(max(0.0, deadline - time.monotonic()))
    return set(found)


def _knock(host: str, found: set[str]) -> None:
    name, _, port = host.partition(":")
    try:
        with socket.create_connection((name, int(port or 443)), timeout=_ASK_S):
            found.add(host)
    except (OSError, ValueError, UnicodeError):  # it has no such name, no such port, or does not answer
        return
