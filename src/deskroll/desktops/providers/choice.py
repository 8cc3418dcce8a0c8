"""Which provider a run gets: what was asked for, what this machine has, and what DESKROLL_PROVIDER says.

Pure but for looking whether programs are there. Guarantees: nobody is handed another kind of desktop in silence:
`Choice.substituted` says what takes the place of what was asked for, and which options no longer count.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import msgspec

from deskroll.errors import InputError
from deskroll.registry import Registry
from deskroll.types import Record

VARIABLE = "DESKROLL_PROVIDER"
"""Names a provider that takes the place of whichever was asked for."""
_MACHINES = ("path_to_vm", "region")
"""Options of virtual machines and clouds."""
AUTO, EMBEDDED = "auto", "local"
_PROGRAMS = {"vmware": "vmrun", "virtualbox": "VBoxManage", "docker": "docker"}
_DOCUMENTED = ("vmware", "virtualbox", "aws", "gcp", "azure", "aliyun", "volcengine", "docker")
"""Names that users' documents hold, whether or not this version has them."""


class Choice(Record, frozen=True):
    """A provider, with the options that count for it."""

    name: str
    options: dict[str, str] = msgspec.field(default_factory=dict)
    substituted: str = ""
    """Why it is not what was asked for; empty where it is."""


def check_name(asked: str) -> None:
    """Refuse a name that is no provider's, here or in users' documents."""
    if asked != AUTO and asked not in _DOCUMENTED:
        Registry().find("provider", asked)


def choose(asked: str, options: Mapping[str, str], environ: Mapping[str, str]) -> Choice:
    """The provider for what was asked; `InputError` where there can be none."""
    instead = environ.get(VARIABLE, "").strip()
    if instead == AUTO and asked != AUTO:
        choice = _automatic(options)
        said = f"provider {asked} was asked for; {VARIABLE}={AUTO} takes its place, which is {choice.name} here"
        return msgspec.structs.replace(choice, substituted=said)
    if instead and instead != asked:
        try:
            Registry().find("provider", instead)
        except InputError as error:
            raise InputError(f"{VARIABLE} is {instead!r}: {error}") from None
        # What was meant for another kind of desktop means nothing to this one.
        machine = instead in _DOCUMENTED
        kept = {name: value for name, value in options.items() if asked == AUTO and (machine or name not in _MACHINES)}
        unused = [name for name in options if name not in kept]
        tail = f"; {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used" if unused else ""
        said = f"provider {asked} was asked for; {VARIABLE}={instead} takes its place{tail}"
        return Choice(name=instead, options=kept, substituted=said if asked != AUTO or unused else "")
    if asked == AUTO:
        return _automatic(options)
    known = [entry.name for entry in Registry().entries("provider")]
    if asked in known or ":" in asked:
        return Choice(name=asked, options=dict(options))
    check_name(asked)
    program = _PROGRAMS.get(asked)
    lacks_it = program is not None and shutil.which(program) is None
    absent = f", and its program {program} is not on this machine" if lacks_it else ""
    why = f"is not part of this version (there are: {', '.join(known)}){absent}"
    raise InputError(f"provider {asked!r} {why}; {VARIABLE}={EMBEDDED} runs the tasks on embedded desktops instead")


def _automatic(options: Mapping[str, str]) -> Choice:
    """vmware where it can be, else embedded desktops."""
    names = {entry.name for entry in Registry().entries("provider")}
    if "vmware" in names and "path_to_vm" in options and shutil.which("vmrun"):
        return Choice(name="vmware", options=dict(options))
    if "path_to_vm" not in options:
        return Choice(name=EMBEDDED, options=dict(options))
    rest = {name: value for name, value in options.items() if name != "path_to_vm"}
    why = "this version has no provider vmware" if shutil.which("vmrun") else "there is no vmrun here"
    said = f"provider auto: {why}, so desktops are embedded ones ({EMBEDDED}); path_to_vm is not used"
    return Choice(name=EMBEDDED, options=rest, substituted=said)
