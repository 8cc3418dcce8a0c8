"""Messages: three encodings, the same bytes every time, and back again."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.errors import InputError
from deskroll.models import Message, ToolResult, tool_results
from deskroll.types import Completion, ToolRequest

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff\xe0"

# Any text at all, halves of surrogate pairs included: models and file names bring them.
texts = st.text(st.characters(exclude_categories=()), max_size=40)
images = st.lists(
    st.tuples(texts.filter(bool), st.builds(bytes.__add__, st.sampled_from([PNG, JPEG]), st.binary(max_size=50))),
    max_size=3, unique_by=lambda image: image[0].encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
)  # fmt: skip
calls = st.lists(st.builds(ToolRequest, id=texts, name=texts, arguments=texts), max_size=3)
messages = st.one_of(
    st.builds(Message.system, texts),
    st.builds(Message.user, texts, images, texts),
    st.builds(Message.tool, texts, texts, images),
    st.builds(lambda text, calls: Message.assistant(Completion(text=text, tool_calls=tuple(calls))), texts, calls),
)


@given(st.data())
def test_stored_and_back_to_the_byte(data: st.DataObject) -> None:
    shown = data.draw(images)
    kind = data.draw(st.sampled_from(["user", "tool"]))
    text = data.draw(texts)
    bulk = data.draw(texts)
    message = Message.user(text, shown, bulk) if kind == "user" else Message.tool("c", text, shown)
    kept = dict(zip(message.names, (image for _, image in shown), strict=True))
    again = Message.restore(message.stored, kept.__getitem__)
    assert again.lean == message.lean
    assert again.sent == message.sent
    assert again.stored == message.stored


@given(messages)
def test_every_encoding_is_json_and_the_same_every_time(message: Message) -> None:
    for encoded in (message.sent, message.lean, message.stored):
        read = json.loads(encoded)
        assert read["role"] == message.role
    assert message.sent is message.sent
    if not message.names:
        again = Message.restore(message.stored, lambda _: b"")
        assert (again.sent, again.lean, again.stored) == (message.sent, message.lean, message.stored)
        assert [call.arguments for call in again.tool_calls] == [
            call["function"]["arguments"] for call in json.loads(message.sent).get("tool_calls", [])
        ]


def test_the_three_encodings_of_a_screen() -> None:
    message = Message.user("look", [("screens/3.png", PNG + b"abc"), ("screens/4.jpg", JPEG)])
    sent, lean, stored = (json.loads(each)["content"] for each in (message.sent, message.lean, message.stored))
    assert sent[0] == lean[0] == stored[0] == {"type": "text", "text": "look"}
    urls = [part["image_url"]["url"] for part in sent[1:]]
    assert [url.partition(",")[0] for url in urls] == ["data:image/png;base64", "data:image/jpeg;base64"]
    assert base64.b64decode(urls[0].partition(",")[2]) == PNG + b"abc"
    assert lean[1:] == [{"type": "text", "text": "[image withheld]"}] * 2
    assert [part["image_url"]["url"] for part in stored[1:]] == ["screens/3.png", "screens/4.jpg"]


def test_a_screen_without_words_has_no_empty_text() -> None:
    content = json.loads(Message.user(images=[("a.png", PNG)]).sent)["content"]
    assert [part["type"] for part in content] == ["image_url"]


def test_an_image_is_fetched_only_when_it_is_sent() -> None:
    asked: list[str] = []

    def fetch(name: str) -> bytes:
        asked.append(name)
        return PNG

    message = Message.restore(Message.user("look", [("screens/1.png", PNG)]).stored, fetch)
    assert message.lean
    assert message.stored
    assert asked == []
    assert message.sent is message.sent
    assert asked == ["screens/1.png"]


def test_what_the_model_said_is_kept_as_it_wrote_it() -> None:
    call = ToolRequest(id="c1", name="click", arguments='{"x": 1,, "y"')
    completion = Completion(text="", reasoning="a secret thought", tool_calls=(call,))
    assert json.loads(Message.assistant(completion).sent) == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "click", "arguments": '{"x": 1,, "y"'}}],
    }
    assert json.loads(Message.assistant(Completion()).sent) == {"role": "assistant", "content": ""}


def test_images_of_tools_go_into_a_message_of_their_own() -> None:
    results = [ToolResult(call_id="a", text="1", images=(("1.png", PNG),)), ToolResult(call_id="b", text="2")]
    safe = tool_results(results, caption="the screen")
    assert [message.role for message in safe] == ["tool", "tool", "user"]
    assert [message.call_id for message in safe] == ["a", "b", ""]
    assert (safe[2].text, safe[2].names) == ("the screen", ("1.png",))
    inline = tool_results(results, inline_images=True)
    assert [(message.role, message.names) for message in inline] == [("tool", ("1.png",)), ("tool", ())]
    assert [message.role for message in tool_results(results[1:])] == ["tool"]


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(InputError, match=r"'screens/1.png' is neither PNG nor JPEG"):
        Message.user("look", [("screens/1.png", b"GIF89a")])
    with pytest.raises(InputError, match="has no name"):
        Message.user("look", [("", PNG)])


@pytest.mark.parametrize("stored", [b"", b"[]", b'{"role":"king"}', b'{"role":"user","content":[{"image_url":3}]}'])
def test_a_broken_store_is_said_to_be_so(stored: bytes) -> None:
    with pytest.raises(InputError, match="a stored message is broken"):
        Message.restore(stored, lambda _: PNG)


def test_repr_is_short() -> None:
    assert len(repr(Message.user("x" * 100_000, [("1.png", PNG + bytes(100_000))]))) < 150


def test_a_message_that_let_its_images_go_is_sent_without_them() -> None:
    image = b"\x89PNG\r\n\x1a\n" + bytes(1000)
    message = Message.user("look", [("screens/0.png", image)])
    before = (message.lean, message.stored)
    assert len(message.sent) > 1000
    message.let_go()
    assert (message.lean, message.stored) == before
    with pytest.raises(RuntimeError):
        _ = message.sent
