"""The accessibility tree of everything on one desktop, as XML in OSWorld's form.

Speaks AT-SPI over D-Bus itself (`atspi_bus`), reads each program's objects (`atspi_walk`) and writes them
down (`atspi_xml`). Guarantees: one program that hangs, lies or dies costs itself only: it is in the tree as
far as it told, marked `cut="silent"`, and the others are there in time. A desktop whose accessibility bus
died raises DesktopLost; one whose bus or registry hangs raises DesktopTimeout; the next read connects anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from dbus_fast.validators import is_bus_name_valid

from deskroll.desktops.x11.atspi_bus import (
    MOST_IN_FLIGHT,
    Call,
    Connection,
    Method,
    NoAnswer,
    Window,
    connect,
)
from deskroll.desktops.x11.atspi_nodes import ROLES, CutReason, Node, Ref
from deskroll.desktops.x11.atspi_places import align
from deskroll.desktops.x11.atspi_walk import CHILDREN, ROOT_PATH, Limits, ProgramWalk, Scope
from deskroll.desktops.x11.atspi_xml import NAMESPACES, to_xml
from deskroll.errors import DesktopLost, DesktopTimeout

__all__ = ["NAMESPACES", "Accessibility", "Cut", "CutReason", "Limits", "Scope", "Tree"]

_REGISTRY = ("org.a11y.atspi.Registry", ROOT_PATH)
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
_NAME_OWNER = Method("org.freedesktop.DBus", "GetNameOwner", "s", "s")
_PROCESS_ID = Method("org.freedesktop.DBus", "GetConnectionUnixProcessID", "s", "u")
_UNANSWERED = {CutReason.SILENT, CutReason.TIME}
_APPLICATION = ROLES.index("application")


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of the tree that is missing."""

    program: str
    reason: CutReason


@dataclass(frozen=True, slots=True)
class Tree:
    """What the programs on a desktop told of themselves."""

    xml: str
    nodes: int
    """Elements below the root."""
    cuts: tuple[Cut, ...] = ()
    """What is missing and why; empty when the tree is whole."""


class Accessibility:
    """Reads the accessibility tree of the desktop that a session bus belongs to, one read at a time."""

    def __init__(self, session_bus_address: str) -> None:
        self._session_bus_address = session_bus_address
        self._connection: Connection | None = None
        self._registry: object = None  # its name on the bus
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._turn:
            await self._disconnect()

    async def read(self, limits: Limits | None = None) -> Tree:
        """Read the tree within `limits.deadline_s`, counted from when it is this read's turn."""
        limits = limits or Limits()
        async with self._turn:
            deadline = asyncio.get_running_loop().time() + limits.deadline_s
            connection = await self._connect(limits)
            try:
                walks = await self._walk(connection, limits, deadline)
                names = [await _program_name(connection, walk, limits) for walk in walks]
            except BaseException:
                await self._disconnect()
                raise
            if not connection.alive:
                await self._disconnect()
                raise self._lost(connection)
            if any(_UNANSWERED.intersection(walk.cuts) for walk in walks):
                await self._disconnect()  # calls that nobody will answer would pile up on this connection
            return _tree(walks, names)

    async def _connect(self, limits: Limits) -> Connection:
        if self._connection is not None and not self._connection.alive:
            await self._disconnect()
        if self._connection is None:
            self._connection = await connect(self._session_bus_address, limits.deadline_s)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _walk(self, connection: Connection, limits: Limits, deadline: float) -> list[ProgramWalk]:
        connection.drop_lost()
        programs = await self._programs(connection, limits, deadline)
        in_flight = min(limits.in_flight, max(1, MOST_IN_FLIGHT // max(1, len(programs))))

        async def read(ref: Ref, *, direct: bool) -> ProgramWalk:
            window = Window(connection, in_flight, limits.silence_s, deadline)
            walk = ProgramWalk(window, *ref, limits)
            await walk.run(direct=direct)
            if direct and (window.left or (walk.root is None and not walk.cuts)):
                return await read(ref, direct=False)  # it has ended, or what it offered led elsewhere
            return walk

        if limits.in_flight == 1:
            return [await read(ref, direct=False) for ref in programs]
        async with asyncio.TaskGroup() as group:
            walks = [group.create_task(read(ref, direct=True)) for ref in programs]
        return [each.result() for each in walks]

    async def _programs(self, connection: Connection, limits: Limits, deadline: float) -> list[Ref]:
        """The registry starts by itself when it is asked; that may take a while on a busy machine."""
        window = Window(connection, 1, limits.deadline_s, deadline)
        try:
            (refs,) = await window.run([Call(_REGISTRY, CHILDREN)])
        except NoAnswer as silence:
            if not connection.alive:
                raise self._lost(connection) from None
            raise DesktopTimeout(
                f"the accessibility registry of session bus {self._session_bus_address} gave no answer "
                f"within {limits.deadline_s:g} s: the desktop is stuck"
            ) from silence
        if refs is None:
            raise DesktopLost(
                f"the accessibility bus of session bus {self._session_bus_address} has no registry: "
                "at-spi2-registryd cannot be started (package at-spi2-core)"
            )
        await self._check_registry(window)
        return [ref for ref in cast(list[Ref], refs) if is_bus_name_valid(ref[0])]

    async def _check_registry(self, window: Window) -> None:
        """A registry that was started anew knows nothing of the programs that the old one knew."""
        (owner,) = await window.run([Call(_BUS, _NAME_OWNER, (_REGISTRY[0],))])
        if self._registry is None:
            self._registry = owner
        elif owner != self._registry:
            raise DesktopLost(
                f"the accessibility registry of session bus {self._session_bus_address} died; the programs that it "
                "knew are not in the tree any more: replace the desktop"
            )

    def _lost(self, connection: Connection) -> DesktopLost:
        reason = connection.lost.result() if connection.lost.done() else "disconnected"
        return DesktopLost(
            f"the accessibility bus of session bus {self._session_bus_address} died while it was read "
            f"({reason}): replace the desktop"
        )


async def _program_name(connection: Connection, walk: ProgramWalk, limits: Limits) -> str:
    """What it calls itself; of a program that is silent, what the system calls its process."""
    if walk.root is not None:
        return walk.root.name
    loop = asyncio.get_running_loop()
    window = Window(connection, 1, limits.silence_s, loop.time() + limits.silence_s)
    try:
        (pid,) = await window.run([Call(_BUS, _PROCESS_ID, (walk.bus_name,))])
    except NoAnswer:
        return ""
    return _process_name(pid)


def _process_name(pid: object) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""  # it is gone, or its process is not ours to see


def _tree(walks: list[ProgramWalk], names: list[str]) -> Tree:
    applications = []
    cuts = []
    for walk, name in zip(walks, names, strict=True):
        cuts += [Cut(name, reason) for reason in walk.cuts]
        if walk.root is not None:
            align(walk.root)
            applications.append(walk.root)
        elif walk.cuts:  # without a root and without a cut, the program has ended meanwhile
            applications.append(Node((walk.bus_name, ROOT_PATH), name=name, role=_APPLICATION, cut=walk.cuts[0]))
    nodes = sum(max(walk.count, 1 if walk.cuts else 0) for walk in walks)
    return Tree(to_xml(applications), nodes, tuple(cuts))
