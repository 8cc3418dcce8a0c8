"""Whether a task can run in a place, and why not.

Pure: what the place has is given (`Place`). Guarantees: what is certain to fail is a reason against it; what only has
to be set, or may go another way than upstream's, is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deskroll.tasks.apps import App, app_of, is_there
from deskroll.tasks.needs import Download, Need, Needs, host_of
from deskroll.types import Record


class Verdict(Record, frozen=True):
    """What came of looking at one task."""

    why_not: tuple[str, ...] = ()
    """What stands against it; empty: it can run."""
    notes: tuple[str, ...] = ()
    """What to set, and what will not be as upstream has it."""
    packages: tuple[str, ...] = ()
    """Debian's packages that bring what it lacks of this machine."""
    enough: bool = False
    """Whether nothing else stands against it."""

    @property
    def can_run(self) -> bool:
        """Whether nothing stands against it."""
        return not self.why_not


@dataclass(frozen=True)
class Place:
    """A machine and a provider of desktops, as far as tasks care."""

    provider: str
    has: Callable[[str], bool] | None
    """Whether a program is on its desktops; None: that is up to the provider's image."""
    reaches: Callable[[str], bool] | None = None
    """Whether this machine reaches a host; None: it is to reach none."""
    problem: str = ""
    """Why it has no desktops at all."""
    real: bool = True
    """Whether programs run on its desktops at all."""
    embedded: bool = False
    """Whether desktops are made of this machine: no GNOME, no systemd, nothing can be installed."""
    network: bool = True
    """Whether its desktops can be given the network."""
    accounts: frozenset[str] = frozenset()
    """Where the run's options give an account."""
    proxy: bool = False
    fixed_ip: bool = False
    windows: bool = False


def judge(needs: Needs, missing: Sequence[Download], place: Place) -> Verdict:
    """Whether a task of these needs can run there; `missing` are those of its files that are not here already."""
    against: list[str] = []
    absent: list[App] = []
    if place.problem:
        against.append(place.problem)
    elif not place.real:
        against.append(f"provider {place.provider} simulates its desktops: no program runs on them")
    elif Need.WINDOWS in needs.kinds and not place.windows:
        against.append(f"it needs Windows, and desktops of provider {place.provider} run Linux")
    else:
        absent = absent_apps(needs, place.has) if place.has is not None else []
        programs = [f"{app.name} is not on this machine: {app.install}" for app in absent]
        against += [*programs, *_machine(needs, place)]
    if locked := [each for each in needs.accounts if each not in place.accounts]:
        against.append(f"it needs an account ({', '.join(locked)})")
    against += _hosts(needs, missing, place)
    return Verdict(
        why_not=tuple(against),
        notes=tuple(_notes(needs, place)),
        packages=tuple(dict.fromkeys(package for app in absent for package in app.packages)),
        enough=bool(against) and len(against) == sum(bool(app.packages) for app in absent),
    )


def absent_apps(needs: Needs, has: Callable[[str], bool]) -> list[App]:
    """The programs that its desktops would have to have, and have not."""
    return [app for app in map(app_of, needs.apps) if not is_there(app, has)]


def _machine(needs: Needs, place: Place) -> list[str]:
    against = []
    if place.embedded and needs.session:
        against.append(f"it needs {' and '.join(needs.session)}, which embedded desktops do not run")
    if place.embedded and "apt" in needs.installers:
        against.append("it installs packages (apt), and programs of embedded desktops are this machine's, read-only")
    if _wants_network(needs) and not place.network:
        against.append(f"it needs the network, which desktops of provider {place.provider} cannot have")
    return against


def _hosts(needs: Needs, missing: Sequence[Download], place: Place) -> list[str]:
    files = list(dict.fromkeys(each.host for each in missing))
    pages = list(dict.fromkeys(host_of(each) for each in needs.pages))
    if place.reaches is None:
        offline = [f"files from {_some(files)} are not in the cache"] if files else []
        return [*offline, "it needs pages of the live web"] if pages else offline
    against = []
    if away := [host for host in files if not place.reaches(host)]:
        against.append(f"files from {_some(away)} are not in the cache, and it does not answer")
    if away := [host for host in pages if not place.reaches(host)]:
        against.append(f"it needs pages of {_some(away)}, which does not answer")
    return against


def _notes(needs: Needs, place: Place) -> Iterable[str]:
    if _wants_network(needs) and place.network:
        yield "give its desktops the network: --set env_options.network=true"
    if Need.PROXY in needs.kinds and not place.proxy:
        yield f"it asks for a proxy, and provider {place.provider} has none: sites may refuse this machine's address"
    if Need.FIXED_IP in needs.kinds and not place.fixed_ip:
        yield f"it asks for a fixed address, which provider {place.provider} does not promise"


def _wants_network(needs: Needs) -> bool:
    """Whether its desktop does; an evaluator reads pages through the desktop's browser."""
    web = Need.LIVE_WEB in needs.kinds or Need.LIVE_WEB_EVALUATOR in needs.kinds
    return web or bool(needs.installers) or bool(needs.accounts)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
