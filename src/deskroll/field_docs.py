"""Settings in their own words: what each field is, its default and its kind, read from the class that defines it.

Flags of commands, their help and the tables of docs/settings.md are made from this, so that each is written once.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Described:
    """One field of a settings class."""

    path: str
    """Its name, with those of the settings that it stands in: `limits.max_turns`."""
    kind: object
    """Its type, without what else may stand for it (None) and what is allowed."""
    default: object
    text: str
    """What it is."""

    @property
    def shown_default(self) -> str:
        """The default as people write it; empty where there is none."""
        if self.default in (None, "", (), {}) or isinstance(self.default, BaseModel):
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def describe(model: type[BaseModel], path: str) -> Described:
    """The field at a path, e.g. `limits.max_turns`."""
    *parents, name = path.split(".")
    for parent in parents:
        kind = plain_kind(model.model_fields[parent].annotation)
        assert isinstance(kind, type)  # noqa: S101  (the path is ours)
        model = kind
    return _described(model, name, path)


def describe_all(model: type[BaseModel], prefix: str = "", closed: Collection[str] = ()) -> Iterator[Described]:
    """Every field, those of settings inside it after it; where two are of one kind, after the first.

    Of those that are `closed`, by their paths, nothing that is inside.
    """
    known = set()
    for name in model.model_fields:
        found = _described(model, name, f"{prefix}{name}")
        yield found
        if found.path in closed:
            continue
        if isinstance(found.kind, type) and issubclass(found.kind, BaseModel) and found.kind not in known:
            known.add(found.kind)
            yield from describe_all(found.kind, f"{prefix}{name}.", closed)


def plain_kind(annotation: object) -> object:
    """A type without `| None` and without annotations."""
    if get_origin(annotation) is Annotated:
        return plain_kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        return plain_kind(kinds[0]) if len(kinds) == 1 else annotation
    return str if get_origin(annotation) is Literal else annotation


def _described(model: type[BaseModel], name: str, path: str) -> Described:
    field = model.model_fields[name]
    return Described(path, plain_kind(field.annotation), _default(field), _text_of(model, name))


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})


def _text_of(model: type[BaseModel], name: str) -> str:
    """What stands below the field in its class; for settings inside others, what their class says of itself."""
    for owner in model.__mro__:
        if name in inspect.get_annotations(owner) and (text := _texts(owner).get(name)):
            return " ".join(text.split())
    kind = plain_kind(model.model_fields[name].annotation)
    return inspect.cleandoc(getattr(kind, "__doc__", None) or "").partition("\n")[0]


@functools.cache
def _texts(kind: type) -> dict[str, str]:
    """The text below each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101  (it is the source of a class)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    found[field.target.id] = said
    return found


def table(model: type[BaseModel], base: type[BaseModel] | None = None, *, closed: Collection[str] = ()) -> str:
    """Every field, as a table in Markdown; one that only holds others stands above them with what they are.

    `base`: a class that the model is made from; only what is the model's own is there then. `closed`: fields whose own
    fields are not shown.
    """
    rows = ["| setting | default | is |", "|---|---|---|"]
    own = [*inspect.get_annotations(model)] if base is not None else [*model.model_fields]
    for each in (each for each in describe_all(model, closed=closed) if each.path.partition(".")[0] in own):
        default = f"`{each.shown_default}`" if each.shown_default else ""
        rows.append(f"| `{each.path}` | {default} | {each.text.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"
