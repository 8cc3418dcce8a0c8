"""Message: the unit of a conversation, built once and encoded once.

A message has three encodings, each a JSON object as bytes, each made when it is first asked for and then kept:

    sent     what the model gets: images as data URLs
    lean     the same with every image replaced by the text `[image withheld]`, and its bulk (a long text that is of use
             only while it is new, such as an accessibility tree) by `[text withheld]`
    stored   what is written to disk: images by their names (`screens/3.png`), the bulk marked, which `restore` undoes

Guarantees: the same input gives the same bytes; `restore(m.stored, images)` gives the same `sent` and the same `lean`,
to the byte. No image passes through a JSON encoder, and its raw bytes are let go once `sent` was made.

Servers that speak OpenAI's protocol differ in whether a tool's answer may hold images. `tool_results` therefore puts
text alone into the tools' messages and the images into one user message after them (the safe way), or, with
`inline_images=True`, each image into the message of its own tool, for servers that are known to take that.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from deskroll.errors import InputError, plain
from deskroll.types import Completion, Record, ToolRequest

Role = Literal["system", "user", "assistant", "tool"]
Image = tuple[str, bytes]
"""The name that an image is stored under, and its bytes (PNG or JPEG)."""
WITHHELD = "[image withheld]"
BULK_WITHHELD = "[text withheld]"
_MAGIC = ((b"\x89PNG\r\n\x1a\n", b"png"), (b"\xff\xd8\xff", b"jpeg"))
_encode = msgspec.json.Encoder().encode
_WITHHELD_PART = b'{"type":"text","text":%b}' % _encode(WITHHELD)
_BULK_WITHHELD_PART = b'{"type":"text","text":%b}' % _encode(BULK_WITHHELD)


class Message:
    """One message. Make it with `system`, `user`, `assistant` or `tool`; it does not change afterwards."""

    __slots__ = (
        "_bulk",
        "_calls",
        "_gone",
        "_images",
        "_lean",
        "_names",
        "_sent",
        "_stored",
        "call_id",
        "role",
        "text",
    )

    def __init__(
        self,
        role: Role,
        text: str = "",
        *,
        bulk: str = "",
        images: Iterable[Image] = (),
        tool_calls: Sequence[ToolRequest] = (),
        tool_call_id: str = "",
    ) -> None:
        given = tuple(images)
        for name, image in given:
            _media_type(name, image)
        self._set(role, text, tuple(name for name, _ in given) if given else (), tool_calls, tool_call_id)
        self._bulk = _utf8(bulk)
        self._images: Callable[[int], bytes] | None = lambda place: given[place][1]

    def _set(self, role: Role, text: str, names: tuple[str, ...], calls: Sequence[ToolRequest], call_id: str) -> None:
        if not all(names):
            raise InputError("an image of a message has no name; it is stored under one, e.g. screens/3.png")
        self.role: Role = role
        self.text = _utf8(text)
        self.call_id = _utf8(call_id)
        self._names = tuple(map(_utf8, names))
        self._calls = tuple(calls)
        self._bulk = ""
        self._gone = False
        self._sent: bytes | None = None
        self._lean: bytes | None = None
        self._stored: bytes | None = None

    @classmethod
    def system(cls, text: str) -> Message:
        """Instructions."""
        return cls("system", text)

    @classmethod
    def user(cls, text: str = "", images: Iterable[Image] = (), bulk: str = "") -> Message:
        """What a user says and shows: the text, the bulk, then the images."""
        return cls("user", text, bulk=bulk, images=images)

    @classmethod
    def assistant(cls, completion: Completion) -> Message:
        """What the model said: its text and its calls as it wrote them, without its reasoning."""
        return cls("assistant", completion.text, tool_calls=completion.tool_calls)

    @classmethod
    def tool(cls, call_id: str, text: str, images: Iterable[Image] = ()) -> Message:
        """What came of a tool call. With images it is for servers that take them there; see `tool_results`."""
        return cls("tool", text, images=images, tool_call_id=call_id)

    @classmethod
    def restore(cls, stored: bytes, images: Callable[[str], bytes]) -> Message:
        """The message that `stored` was made of; `images` gives an image by name, and is asked when `sent` is."""
        try:
            read = msgspec.json.decode(stored, type=_Stored)
        except msgspec.MsgspecError as error:
            raise InputError(f"a stored message is broken: {error}") from None
        parts = read.content if isinstance(read.content, list) else []
        text = read.content if isinstance(read.content, str) else "".join(each.text for each in parts if not each.bulk)
        names = tuple(part.image_url.url for part in parts if part.image_url is not None)
        calls = [
            ToolRequest(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in read.tool_calls
        ]
        message = cls.__new__(cls)
        message._set(read.role, text, names, calls, read.tool_call_id)
        message._bulk = "".join(each.text for each in parts if each.bulk)
        message._images = lambda place: images(names[place])
        return message

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its images, in order."""
        return self._names

    @property
    def calls(self) -> tuple[ToolRequest, ...]:
        """The tool calls that it asks for, in order."""
        return self._calls

    @property
    def heavy(self) -> bool:
        """Whether there is anything that can be withheld: images, or a bulk."""
        return bool(self._names or self._bulk)

    @property
    def tool_calls(self) -> tuple[ToolRequest, ...]:
        """The calls that it asks for."""
        return self._calls

    @property
    def sent(self) -> bytes:
        """What the model gets."""
        if self._sent is None:
            if self._gone:
                raise RuntimeError("what is heavy in this message was let go: it can be sent lean only")
            self._sent = self._encoded(
                self._parts(self._data_url, _part(self._bulk)) if self.heavy else self._content()
            )
            self._images = None  # a third of what a conversation would otherwise hold in memory
        return self._sent

    @property
    def lean(self) -> bytes:
        """What the model gets where images are withheld; the same as `sent` where there are none."""
        if self._lean is None:
            if not self.heavy:
                return self.sent
            self._lean = self._encoded(self._parts(lambda _: _WITHHELD_PART, _BULK_WITHHELD_PART))
        return self._lean

    @property
    def stored(self) -> bytes:
        """What is written to disk."""
        if self._stored is None:
            if not self.heavy:
                return self.sent
            marked = b'{"type":"text","bulk":true,"text":%b}' % _encode(self._bulk)
            self._stored = self._encoded(self._parts(self._by_name, marked))
        return self._stored

    def let_go(self) -> None:
        """Free its images: it will be sent without them from now on, and `sent` cannot be asked for any more."""
        if self.heavy:
            self._lean, self._stored, self._gone = self.lean, self.stored, True
            self._sent = self._images = None

    def _data_url(self, place: int) -> bytes:
        if self._images is None:
            raise RuntimeError("an image was let go before it was encoded")
        image = self._images(place)
        kind = _media_type(self._names[place], image)
        code = binascii.b2a_base64(image, newline=False)
        return b"".join((b'{"type":"image_url","image_url":{"url":"data:image/', kind, b";base64,", code, b'"}}'))

    def _by_name(self, place: int) -> bytes:
        return b'{"type":"image_url","image_url":{"url":%b}}' % _encode(self._names[place])

    def _encoded(self, content: bytes) -> bytes:
        answered = b',"tool_call_id":%b' % _encode(self.call_id) if self.role == "tool" else b""
        calls = b',"tool_calls":[%b]' % b",".join(map(_call, self._calls)) if self._calls else b""
        return b'{"role":"%b"%b,"content":%b%b}' % (self.role.encode(), answered, content, calls)

    def _content(self) -> bytes:
        """The text alone. The protocol wants a content of every message, except where there are calls."""
        return _encode(self.text) if self.text or not self._calls else b"null"

    def _parts(self, image: Callable[[int], bytes], bulk: bytes) -> bytes:
        """The text with all that is heavy, each in its place."""
        parts = [_part(self.text)] if self.text else []
        if self._bulk:
            parts.append(bulk)
        parts.extend(map(image, range(len(self._names))))
        return b"[%b]" % b",".join(parts)

    def __repr__(self) -> str:
        more = f", {len(self._names)} images" if self._names else ""
        more += f", calls {', '.join(plain(call.name, 40) for call in self._calls)}" if self._calls else ""
        return f"<{self.role} message {plain(self.text, 60)!r}{more}>"


class ToolResult(Record, frozen=True):
    """What came of one tool call, to be told to the model."""

    call_id: str
    text: str
    images: tuple[Image, ...] = ()


def tool_results(results: Sequence[ToolResult], *, inline_images: bool = False, caption: str = "") -> list[Message]:
    """The messages that answer all tool calls of one turn, in the order in which they have to be sent.

    The images of all results go into one user message at the end, under the text `caption`; with `inline_images`, each
    stays in its tool's own message instead, which not every server takes.
    """
    if inline_images:
        return [Message.tool(result.call_id, result.text, result.images) for result in results]
    messages = [Message.tool(result.call_id, result.text) for result in results]
    if images := [image for result in results for image in result.images]:
        messages.append(Message.user(caption, images))
    return messages


def _part(text: str) -> bytes:
    return b'{"type":"text","text":%b}' % _encode(text)


def _call(call: ToolRequest) -> bytes:
    function = b'{"name":%b,"arguments":%b}' % (_encode(_utf8(call.name)), _encode(_utf8(call.arguments)))
    return b'{"id":%b,"type":"function","function":%b}' % (_encode(_utf8(call.id)), function)


def _utf8(text: str) -> str:
    """The text, with what UTF-8 cannot hold (halves of surrogate pairs, from broken file names) replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _media_type(name: str, image: bytes) -> bytes:
    for magic, kind in _MAGIC:
        if image.startswith(magic):
            return kind
    raise InputError(f"image {plain(name)!r} is neither PNG nor JPEG: it begins with {image[:8]!r}")


class _Url(msgspec.Struct):
    url: str


class _Part(msgspec.Struct):
    text: str = ""
    bulk: bool = False
    image_url: _Url | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Stored(msgspec.Struct):
    role: Role
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] = []
    tool_call_id: str = ""
