"""The accessibility tree as XML, in the form of OSWorld's guest server on Ubuntu.

    <desktop-frame xmlns:st="…/ns/state" …>
      <application name="mousepad" …>
        <frame name="Untitled 1 - Mousepad" st:active="true" st:showing="true" … attr:toolkit="gtk"
               cp:screencoord="(632, 282)" cp:size="(640, 480)">
          <text name="" …>what was typed</text>

The tag is the role. Attributes: `name`; `st:` a "true" for each state; `attr:` the object's own attributes;
`cp:screencoord` and `cp:size` of what is on the screen; `image` and `selection`, "true" where the object has
that interface; `val:value|min|max|step`; `act:NAME_desc` and `act:NAME_kb` of each action. The text is the
object's text. One attribute is ours: `cut`, why something is missing there (`CutReason`).

Guarantees well-formed XML whatever the programs say: what XML cannot hold is left out of values and becomes
"-" in names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from deskroll.desktops.x11.atspi_nodes import ROLES, STATES, Node, role_is_named

NAMESPACES = {
    prefix: f"https://accessibility.ubuntu.example.org/ns/{name}"
    for prefix, name in (
        ("st", "state"),
        ("attr", "attributes"),
        ("cp", "component"),
        ("doc", "document"),
        ("docattr", "document/attributes"),
        ("txt", "text"),
        ("val", "value"),
        ("act", "action"),
    )
}

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_A_NAME = re.compile(r"[^\w.-]", re.ASCII)
_PLAIN = re.compile(r"[\w .,:;/()'+-]*", re.ASCII)
"""What needs no escaping: nearly everything, so it is looked for first."""
_IN_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_IN_ATTRIBUTE = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)
_PLACEHOLDERS = str.maketrans("", "", "\ufffc\ufffd")
"""What stands in a text for an embedded object."""


def to_xml(applications: Iterable[Node]) -> str:
    """The tree of the whole desktop."""
    declared = "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in NAMESPACES.items())
    parts = [f"<desktop-frame{declared}>"]
    for application in applications:
        _append(parts, application)
    parts.append("</desktop-frame>")
    return "".join(parts)


def _append(parts: list[str], root: Node) -> None:
    """Without recursion: how deep a tree is, is up to the program."""
    stack: list[tuple[str, Iterator[Node]]] = []
    parts.append(_opening(root))
    stack.append((_tag(root), iter(root.children)))
    while stack:
        tag, children = stack[-1]
        child = next(children, None)
        if child is None:
            stack.pop()
            parts.append(f"</{tag}>")
        else:
            parts.append(_opening(child))
            stack.append((_tag(child), iter(child.children)))


def _opening(node: Node) -> str:
    shown = "".join(f' {key}="{_escaped(value)}"' for key, value in _attributes(node).items())
    text = _NOT_XML.sub("", node.text.translate(_PLACEHOLDERS)).translate(_IN_TEXT) if node.text else ""
    return f'<{_tag(node)} name="{_escaped(node.name)}"{_states(node.states)}{shown}>{text}'


def _attributes(node: Node) -> dict[str, str]:
    """All but the name and the states. A dict, since a key may not come twice in XML."""
    found = {f"attr:{_name(key)}": value for key, value in node.attributes.items() if key}
    if node.extents is not None:
        x, y, width, height = node.extents
        found["cp:screencoord"] = f"({x}, {y})"
        found["cp:size"] = f"({width}, {height})"
    if "Image" in node.interfaces:
        found["image"] = "true"
    if "Selection" in node.interfaces:
        found["selection"] = "true"
    for key, number in node.values.items():
        found[f"val:{key}"] = str(number)
    for index, (_, description, key_binding) in enumerate(node.actions or ()):
        action = _name(node.action_names.get(index, ""))
        found[f"act:{action}_desc"] = description
        found[f"act:{action}_kb"] = key_binding
    if node.cut is not None:
        found["cut"] = node.cut.value
    return found


def _tag(node: Node) -> str:
    if node.role is not None and role_is_named(node.role):
        return _ROLE_TAGS[node.role]
    return _name((node.role_name or "").strip()) or "unknown"


_ROLE_TAGS = tuple(role.replace(" ", "-") for role in ROLES)


@lru_cache(maxsize=4096)
def _states(states: int) -> str:
    return "".join(f' st:{name}="true"' for bit, name in enumerate(STATES) if states >> bit & 1)


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    """As a name of XML, which does not begin with a digit, a dot or a hyphen."""
    name = _NOT_IN_A_NAME.sub("-", text)
    return f"_{name}" if name[:1] in set("-.0123456789") else name


def _escaped(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return _NOT_XML.sub("", value).translate(_IN_ATTRIBUTE)
