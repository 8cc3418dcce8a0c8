"""Files: reading, uploading, listing, downloading."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from deskroll.desktops.guest import files
from deskroll.desktops.guest.requests import MULTIPART, BadRequest, PathRequest, read_form, read_json
from deskroll.desktops.guest.routes import MACHINE

routes = web.RouteTableDef()
_CHUNK = 256 * 1024
_DOWNLOAD_TIMEOUT_S = 300.0


class Download(msgspec.Struct):
    """Body of /setup/download_file."""

    url: str = ""
    path: str = ""


@routes.post("/file")
async def get_file(request: web.Request) -> web.StreamResponse:
    """The bytes of a file."""
    path = request.app[MACHINE].expand(await read_form(request, "file_path"))
    try:
        file = files.open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return web.json_response({"error": "File not found"}, status=404)
    except OSError as error:
        return web.json_response({"error": f"Failed to serve file: {error}"}, status=500)
    response = web.StreamResponse(headers={"Content-Disposition": "attachment"})
    response.content_type = "application/octet-stream"
    with os.fdopen(file, "rb") as source:
        await response.prepare(request)
        left = files.MAX_FILE
        while left > 0 and (chunk := await asyncio.to_thread(source.read, min(_CHUNK, left))):
            left -= len(chunk)
            await response.write(chunk)
    await response.write_eof()
    return response


@routes.post("/setup/upload")
async def upload(request: web.Request) -> web.Response:
    """Write a file; its folder is made."""
    name, part = None, Path("/tmp", f".upload-{secrets.token_hex(8)}")  # noqa: S108  (the desktop's own, private)
    size = -1
    try:
        async for field in await _multipart(request):
            if not isinstance(field, aiohttp.BodyPartReader):
                continue
            if field.name == "file_path":
                name = (await field.read(decode=True)).decode(errors="surrogateescape")
            elif field.name == "file_data":
                size = await _spool(field, part)
        if not name or size < 0:
            raise BadRequest(MULTIPART)
        path = request.app[MACHINE].expand(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(_put_in_place, part, path)
    except OSError as error:
        return web.json_response({"error": f"Failed to upload file: {error}"}, status=500)
    except (ValueError, AssertionError, HttpProcessingError) as error:
        raise BadRequest(f"{MULTIPART}; the body is broken: {error}") from None
    finally:
        part.unlink(missing_ok=True)
    return web.Response(text=f"File Uploaded: {size} bytes")


async def _multipart(request: web.Request) -> aiohttp.MultipartReader:
    try:
        return await request.multipart()
    except (AssertionError, ValueError, KeyError):
        raise BadRequest(MULTIPART) from None


async def _spool(field: aiohttp.BodyPartReader, part: Path) -> int:
    size = 0
    with part.open("wb") as out:
        while chunk := await field.read_chunk(_CHUNK):
            size += len(chunk)
            if size > files.MAX_FILE:
                raise BadRequest(f"file_data has more than {files.MAX_FILE} bytes", status=413)
            out.write(field.decode(chunk))
    return size


def _put_in_place(part: Path, path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    # Through the existing file, so that its links and mode stay as they are.
    with part.open("rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, _CHUNK)


@routes.post("/list_directory")
async def list_directory(request: web.Request) -> web.Response:
    """A folder and what is below it."""
    body = await read_json(request, PathRequest)
    if not body.path:
        return web.json_response({"error": "Missing 'path' parameter"}, status=400)
    path = request.app[MACHINE].expand(body.path)
    if not path.is_dir():
        return web.json_response({"error": "The provided path is not a directory"}, status=400)
    try:
        tree = await asyncio.to_thread(files.list_folder, path)
    except OSError as error:
        return web.json_response({"directory_tree": {"error": str(error)}})
    body_bytes = msgspec.json.encode({"directory_tree": tree})
    return web.Response(body=body_bytes, content_type="application/json")


@routes.post("/desktop_path")
async def desktop_path(request: web.Request) -> web.Response:
    """The folder whose files the desktop shows."""
    path = request.app[MACHINE].session.home / "Desktop"
    if not path.exists():
        return web.json_response({"error": "Unsupported operating system or desktop path not found"}, status=404)
    return web.json_response({"desktop_path": str(path)})


@routes.post("/setup/download_file")
async def download_file(request: web.Request) -> web.Response:
    """Fetch a file from inside the desktop: works only where the desktop has a network."""
    body = await read_json(request, Download)
    if not body.url or not body.path:
        raise BadRequest("Path or URL not supplied!")
    path = request.app[MACHINE].expand(body.path)
    try:
        size = await _download(body.url, path)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        path.unlink(missing_ok=True)
        message = f"Failed to download {body.url}. No retries left. Error: {type(error).__name__}: {error}"
        raise BadRequest(message, status=500) from error
    return web.Response(text=f"File downloaded successfully: {size} bytes")


async def _download(url: str, path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    timeout = aiohttp.ClientTimeout(total=_DOWNLOAD_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        response.raise_for_status()
        with path.open("wb") as out:
            async for chunk in response.content.iter_chunked(_CHUNK):
                size += len(chunk)
                if size > files.MAX_FILE:
                    raise ValueError(f"more than {files.MAX_FILE} bytes")
                out.write(chunk)
    return size
