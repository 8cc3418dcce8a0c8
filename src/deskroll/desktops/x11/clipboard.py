"""Text on the clipboard of one X display.

Owns reading and writing the CLIPBOARD selection (or PRIMARY), as UTF-8, through `xclip`. A selection lives in
the program that offers it: the `xclip` of a `write` stays in the background until something else is copied.
Guarantees: when `write` returns, a `read` gives that text back; every call ends by its deadline. A `read` of a
long text that is stopped midway may end the `xclip` that offers it, so that the selection is empty afterwards.
"""

from __future__ import annotations

import asyncio
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import IO, Literal, TypeVar

from deskroll.errors import DesktopError, DesktopTimeout, InputError, MissingDependency

Selection = Literal["clipboard", "primary"]
MAX_BYTES = 16 * 1024 * 1024
"""The most that is read or written."""
TIMEOUT_S = 10.0
_T = TypeVar("_T")


async def read(env: Mapping[str, str], selection: Selection = "clipboard", timeout_s: float = TIMEOUT_S) -> str:
    """Return the text of a selection; empty where nobody offers any text."""
    what = f"reading the {selection}"
    return await _within(timeout_s, what, _read(env, selection))


async def write(
    text: str, env: Mapping[str, str], selection: Selection = "clipboard", timeout_s: float = TIMEOUT_S
) -> None:
    """Offer `text` as a selection; return once others get it."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text for the {selection} cannot be written as UTF-8: {error}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"the text for the {selection} has {len(data)} bytes; at most {MAX_BYTES}: use a file")
    await _within(timeout_s, f"writing the {selection}", _write(data, env, selection))


async def _within(timeout_s: float, what: str, work: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as error:
        raise DesktopTimeout(
            f"{what} took longer than {timeout_s:g} s: the program that owns it does not answer"
        ) from error


async def _write(data: bytes, env: Mapping[str, str], selection: Selection) -> None:
    # xclip's child outlives it and would keep a pipe open: files carry the text in and the errors out.
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as errors:
        source.write(data)
        source.seek(0)
        async with _xclip(env, selection, "-in", stdin=source, stdout=DEVNULL, stderr=errors) as process:
            status = await process.wait()
        if status != 0:
            raise _failed(f"writing the {selection}", status, errors)
    # xclip exits before the server knows of the new owner: it is done when it can be read.
    while (await _read(env, selection)).encode() != data:  # noqa: ASYNC110 - the owner is another process
        await asyncio.sleep(0.005)


async def _read(env: Mapping[str, str], selection: Selection) -> str:
    options = ("-out", "-target", "UTF8_STRING")
    with tempfile.TemporaryFile() as errors:
        async with _xclip(env, selection, *options, stdin=DEVNULL, stdout=PIPE, stderr=errors) as process:
            data = await _read_all(process, selection)
            status = await process.wait()
        if status == 0:
            return data.decode("utf-8", errors="replace")
        errors.seek(0)
        if b"not available" in errors.read():  # nobody owns the selection, or its owner has no text
            return ""
        raise _failed(f"reading the {selection}", status, errors)


async def _read_all(process: Process, selection: Selection) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    data = bytearray()
    while chunk := await process.stdout.read(1 << 16):
        data += chunk
        if len(data) > MAX_BYTES:
            raise DesktopError(f"the {selection} holds more than {MAX_BYTES} bytes, the most that is read")
    return bytes(data)


@asynccontextmanager
async def _xclip(
    env: Mapping[str, str], selection: Selection, *options: str,
    stdin: int | IO[bytes], stdout: int, stderr: IO[bytes],
) -> AsyncIterator[Process]:  # fmt: skip
    """Run xclip; it does not outlive the block (the child that serves a selection does)."""
    command = ("xclip", "-selection", selection, *options)
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=dict(env), stdin=stdin, stdout=stdout, stderr=stderr
        )
    except FileNotFoundError as error:
        raise MissingDependency("xclip is not installed: apt-get install -y xclip") from error
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _failed(what: str, status: int, errors: IO[bytes]) -> DesktopError:
    errors.seek(0)
    reason = errors.read().decode(errors="replace").strip() or "it said nothing"
    return DesktopError(f"{what}: xclip exited with {status}: {reason}")
