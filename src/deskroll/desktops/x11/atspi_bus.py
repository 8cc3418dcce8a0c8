"""Calls to programs over the accessibility bus, many at a time.

Owns the connection to the bus and those that lead past it to a program: most toolkits offer one, which AT-SPI's own
library uses too, and a question costs half without the bus between. Guarantees: a program that never answers costs its
own `Window` only, and no longer than that window's limits; an answer is handed on only if it has the D-Bus type that
the method promises, anything else (an error, another type) is None; a bus that died is seen at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import DBusFastError

from deskroll.desktops.x11.atspi_nodes import CutReason, Ref
from deskroll.errors import DesktopLost, DesktopTimeout

MOST_IN_FLIGHT = 128
"""Unanswered calls on one connection. More of them could fill the socket's buffer while the bus is busy, and
dbus-fast takes a full buffer for the end of the connection."""


@dataclass(frozen=True, slots=True)
class Method:
    """A D-Bus method, or a property read through `Get`."""

    interface: str
    member: str
    takes: str = ""
    """The D-Bus signature of its arguments."""
    gives: str = ""
    """The D-Bus signature of its answer."""
    arguments: tuple[object, ...] = ()
    """Its arguments, where they never change."""
    holds: str = ""
    """The D-Bus signature inside the answer, where the answer is a variant."""


def property_of(interface: str, name: str, holds: str) -> Method:
    """Reading one property."""
    return Method("org.freedesktop.DBus.Properties", "Get", "ss", "v", (interface, name), holds)


@dataclass(frozen=True, slots=True)
class Call:
    """One method on one object; `arguments` where the method does not fix them."""

    ref: Ref
    method: Method
    arguments: tuple[object, ...] | None = None


_DIRECT = Method("org.a11y.atspi.Application", "GetApplicationBusAddress", gives="s")
_OFFERED = re.compile(r"unix:path=/[^,;]+(,guid=[0-9a-f]{1,64})?")
"""Where a program may offer to be asked: a socket of its own."""


class NoAnswer(Exception):
    """The other side did not answer in time, or the bus died."""

    def __init__(self, reason: CutReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class _Bus(MessageBus):
    """dbus-fast's connection, which can send many messages with one call of the kernel."""

    def send_together(self, messages: Sequence[Message]) -> None:
        """Send them in their order. If the connection is found closed, that ends it, as in `send`."""
        writer = self._writer
        if writer is None:  # it was never connected
            return
        was_idle = not writer.messages and writer.buf is None
        writer.messages.append((bytearray().join(each._marshall(False) for each in messages), None, None))
        if was_idle:
            writer.write_callback(remove_writer=False)
        if writer.fd is not None and (writer.messages or writer.buf is not None):
            self._loop.add_writer(writer.fd, writer.write_callback)


class Connection:
    """One connection to the accessibility bus or to a program. Answers are matched to calls by serial number.

    Calls that are posted in one turn of the event loop are sent together.
    """

    def __init__(self, bus: _Bus) -> None:
        self._bus = bus
        self._unsent: list[Message] = []
        self._waiting: dict[int, Callable[[Message], None]] = {}
        self.lost = asyncio.create_task(self._until_lost(), name="accessibility bus")
        """Done when the connection has ended, with the reason."""
        self.direct: dict[str, Connection] = {}
        """Of a connection to the bus: those that lead past it, by the program's name on the bus."""
        bus.add_message_handler(self._on_message)

    @property
    def alive(self) -> bool:
        """Whether the bus is there, as far as can be known without asking it."""
        return not self.lost.done() and self._bus.connected

    def post(self, call: Call, on_answer: Callable[[Message], None]) -> None:
        """Send a call. If the connection ends, `on_answer` is never called."""
        if not self.alive:
            return
        bus_name, path = call.ref
        method = call.method
        serial = self._bus.next_serial()
        message = Message(
            destination=bus_name, path=path, interface=method.interface, member=method.member,
            signature=method.takes, body=list(method.arguments if call.arguments is None else call.arguments),
            serial=serial, validate=False,
        )  # fmt: skip
        self._waiting[serial] = on_answer
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send)
        self._unsent.append(message)

    def drop_lost(self) -> None:
        """Forget the connections to programs that have ended."""
        self.direct = {name: each for name, each in self.direct.items() if each.alive}

    async def close(self) -> None:
        """Leave the bus."""
        for direct in self.direct.values():
            await direct.close()
        if self._bus.connected:
            self._bus.disconnect()
        await asyncio.wait({self.lost})

    def _send(self) -> None:
        messages, self._unsent = self._unsent, []
        if self.alive:
            self._bus.send_together(messages)

    def _on_message(self, message: Message) -> bool:
        on_answer = self._waiting.pop(message.reply_serial, None)
        if on_answer is None:
            return False
        on_answer(message)
        return True

    async def _until_lost(self) -> str:
        try:
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - whatever ended it, it has ended; the reason is kept
            return f"{type(error).__name__}: {error}".rstrip(": ")
        return "we left it"


class Window:
    """At most `in_flight` unanswered calls at a time, each call sent when an earlier one was answered."""

    def __init__(self, connection: Connection, in_flight: int, silence_s: float, deadline: float) -> None:
        self._connection = connection
        self._direct: Connection | None = None
        self._program = ""
        self._in_flight = in_flight
        self._silence_s = silence_s
        self._deadline = deadline

    async def open_direct(self, program: Ref) -> None:
        """Send what is for this program past the bus from now on, if it offers that. Raises NoAnswer, as `run`."""
        known = self._connection.direct
        name, _ = program
        if name not in known or not known[name].alive:
            known.pop(name, None)
            (address,) = await self.run([Call(program, _DIRECT)])
            left = self._deadline - asyncio.get_running_loop().time()
            direct = await _connect_direct(str(address or ""), min(self._silence_s, left))
            if direct is None:
                return
            known[name] = direct
        self._direct, self._program = known[name], name

    @property
    def left(self) -> bool:
        """Whether the program has ended the connection that leads past the bus."""
        return self._direct is not None and not self._direct.alive

    def route(self, call: Call) -> Connection:
        """The connection that a call takes."""
        return self._connection if self._direct is None or call.ref[0] != self._program else self._direct

    async def run(self, calls: Sequence[Call]) -> list[object]:
        """Make the calls; the answers come in the order of the calls, None where there was none.

        Raises NoAnswer after `silence_s` seconds without any answer, or at the deadline (in the loop's time).
        """
        if not calls:
            return []
        batch = _Batch(self.route, calls)
        try:
            for _ in range(self._in_flight):
                batch.send_next()
            while not batch.done.done():
                await self._wait(batch)
        finally:
            batch.stop()
        return batch.answers

    async def _wait(self, batch: _Batch) -> None:
        now = batch.loop.time()
        silent_at = batch.heard + self._silence_s
        until = min(silent_at, self._deadline)
        if until <= now:
            raise NoAnswer(CutReason.SILENT if silent_at <= self._deadline else CutReason.TIME)
        lost = {each.lost for each in (self._connection, self._direct) if each is not None}
        either: set[asyncio.Future[Any]] = {batch.done, *lost}
        await asyncio.wait(either, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
        if any(each.done() for each in lost):
            raise NoAnswer(CutReason.SILENT)


class _Batch:
    """Some calls and the answers that came. No task or future for each call: it is a matter of speed."""

    def __init__(self, route: Callable[[Call], Connection], calls: Sequence[Call]) -> None:
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self.loop.create_future()
        self.heard = self.loop.time()
        self.answers: list[object] = [None] * len(calls)
        self._route = route
        self._unsent: Iterator[tuple[int, Call]] = iter(enumerate(calls))
        self._open = len(calls)

    def send_next(self) -> None:
        following = next(self._unsent, None)
        if following is not None:
            index, call = following
            self._route(call).post(call, partial(self._on_answer, index, call.method))

    def stop(self) -> None:
        self._unsent = iter(())
        self.done.cancel()

    def _on_answer(self, index: int, method: Method, message: Message) -> None:
        self.heard = self.loop.time()
        self.answers[index] = _value(message, method)
        self._open -= 1
        self.send_next()
        if not self._open and not self.done.done():
            self.done.set_result(None)


def _value(message: Message, method: Method) -> object:
    if message.message_type is not MessageType.METHOD_RETURN or message.signature != method.gives:
        return None
    value: object = message.body[0]
    if isinstance(value, Variant):
        return value.value if value.signature == method.holds else None
    return value


async def connect(session_bus_address: str, timeout_s: float) -> Connection:
    """Find the accessibility bus through the session bus and connect to it."""
    where = f"the accessibility bus of session bus {session_bus_address}"
    try:
        async with asyncio.timeout(timeout_s):
            address = await bus_address(session_bus_address)
            return Connection(await _connect(address))
    except TimeoutError as error:
        raise DesktopTimeout(f"{where} gave no answer within {timeout_s:g} s: the desktop is stuck") from error
    except (OSError, EOFError, DBusFastError) as error:
        raise DesktopLost(f"{where} is gone ({type(error).__name__}: {error}): replace the desktop") from error


async def _connect_direct(address: str, timeout_s: float) -> Connection | None:
    """None where the program offers nothing, or not what it says: then it is asked over the bus."""
    if not _OFFERED.fullmatch(address):
        return None
    try:
        async with asyncio.timeout(timeout_s):
            return Connection(await _connect(address))
    except Exception:  # noqa: BLE001 - any program may be at the other end, and say anything
        return None


async def _connect(address: str) -> _Bus:
    bus = _Bus(bus_address=address)
    await bus.connect()
    return bus


async def bus_address(session_bus_address: str) -> str:
    """Where the accessibility bus is, as the session bus knows; waits for it to come up."""
    session = await MessageBus(bus_address=session_bus_address).connect()
    try:
        reply = await session.call(
            Message(
                destination="org.a11y.Bus",
                path="/org/a11y/bus",
                interface="org.a11y.Bus",
                member="GetAddress",
            )
        )
    finally:
        if session.connected:
            session.disconnect()
            await session.wait_for_disconnect()  # type: ignore[no-untyped-call]
    if reply.message_type is not MessageType.METHOD_RETURN or reply.signature != "s" or not reply.body[0]:
        said = reply.body[0] if reply.signature == "s" and reply.body[0] else reply.error_name
        raise DesktopLost(
            f"session bus {session_bus_address} knows no accessibility bus ({said or 'an empty address'}): "
            "at-spi-bus-launcher has to run in the desktop (package at-spi2-core)"
        )
    return str(reply.body[0])
