"""Settings from a file and from overrides: read, checked, and written back as what was resolved.

`load` reads YAML or TOML (by suffix), lays `a.b=c` overrides over it and validates the whole against a
pydantic model. Whatever is wrong becomes one `ConfigError` with a line for each mistake: where it stands
(file and line, or the override), which field, what is wrong and what is allowed. No secret is ever written,
by `dump` or in a message.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from deskroll.errors import ConfigError, plain

Model = TypeVar("Model", bound=BaseModel)
Override = str | tuple[str, object] | tuple[str, object, str]
"""What `--set` says, `a.b=c`, the value in YAML; or a field, its value as it is and, if need be, the flag for it."""
Keys = tuple[str, ...]
"""Where a value stands in a document; places in a list are written as numbers."""


if TYPE_CHECKING:  # the metaclass has no public name, and would hide what a class is made with
    _Base = BaseModel
else:

    class _Checked(type(BaseModel)):
        """Settings that are made in Python say what is wrong as those of a file do."""

        def __call__(cls, *args, **fields):
            try:
                return super().__call__(*args, **fields)
            except ValidationError as error:
                raise _wrong(cls, _Document(cls.__name__, fields), error) from None

    class _Base(BaseModel, metaclass=_Checked):
        pass


class Settings(_Base):
    """Base of every settings model: frozen, and a field it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    text_is: ClassVar[str] = ""
    """The field that a text in the place of these settings stands for; empty: none may stand there."""

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, given: object) -> object:
        return {cls.text_is: given} if cls.text_is and isinstance(given, str) else given


def load(
    model_cls: type[Model],
    path: Path | None = None,
    overrides: Sequence[Override] = (),
    *,
    base: Mapping[str, object] | None = None,
    name: str = "settings",
) -> Model:
    """Read `path` (without one: `base`, called `name`; without that, defaults), lay `overrides` over it, validate."""
    document = _read(path) if path is not None else _Document(name, base or {})
    for override in overrides:
        document = document.spelled_out(model_cls).overridden(override)
    return _validate(model_cls, document)


def check(model_cls: type[Model], data: object, name: str) -> Model:
    """Validate settings that stand inside others; `name` says where, for error messages."""
    return _validate(model_cls, _Document(name, _fields(data, name)))


def _validate(model_cls: type[Model], document: _Document) -> Model:
    _refuse_halves(document)
    try:
        return model_cls.model_validate(document.data)
    except ValidationError as error:
        raise _wrong(model_cls, document, error) from None


def _wrong(model_cls: type[BaseModel], document: _Document, error: ValidationError) -> ConfigError:
    mistakes = [_mistake(model_cls, document, details) for details in _first(error.errors(include_url=False))]
    return ConfigError("\n".join(dict.fromkeys(mistakes)))


def _first(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Mistakes without what only follows from them: a list is not too short because an item of it is wrong."""

    def follows(place: tuple[int | str, ...]) -> bool:
        return any(len(each["loc"]) > len(place) and each["loc"][: len(place)] == place for each in errors)

    def is_long_enough(each: ErrorDetails) -> bool:
        return isinstance(each["input"], Sized) and len(each["input"]) >= each.get("ctx", {}).get("min_length", 0)

    return [
        each for each in errors if not (each["type"] == "too_short" and is_long_enough(each) and follows(each["loc"]))
    ]


def dump(model: BaseModel) -> str:
    """Return the settings as YAML, defaults included; secrets are masked."""
    return yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)


@dataclass(frozen=True)
class _Document:
    """What was read so far, and where each part of it came from."""

    name: str = "settings"
    data: Mapping[str, object] = field(default_factory=dict)
    lines: Mapping[Keys, int] = field(default_factory=dict)
    overrides: tuple[tuple[Keys, str], ...] = ()
    """What was laid over it, and how that was given."""

    def overridden(self, override: Override) -> _Document:
        given = _assignment(override) if isinstance(override, str) else override
        name, value = given[:2]
        typed = given[2] if len(given) == 3 else f"--set {name}"
        keys = tuple(name.split("."))
        data = _laid_over(self.data, keys, value, typed)
        return _Document(self.name, data, self.lines, (*self.overrides, (keys, typed)))

    def spelled_out(self, model_cls: type[BaseModel]) -> _Document:
        """The same, where a text stands for settings by one of their fields: others may be laid over it."""
        data = dict(self.data)
        for name, value in self.data.items():
            for kind in _annotations(model_cls, (name,)) if isinstance(value, str) else ():
                for each in _flat(kind):
                    if isinstance(each, type) and issubclass(each, Settings) and each.text_is:
                        data[name] = {each.text_is: value}
        return _Document(self.name, data, self.lines, self.overrides)

    def place(self, keys: Keys) -> str:
        """Where a value was given, and which it is; once, where that is the same."""
        if keys in (override for override, _ in self.overrides):
            return self.origin(keys)
        return ": ".join(filter(None, (self.origin(keys), ".".join(keys))))

    def origin(self, keys: Keys) -> str:
        """Where a value was given."""
        for override, typed in reversed(self.overrides):
            # Either it set this place, or it made up a mapping where the model wants something else.
            made_up = keys not in self.lines and bool(keys) and override[: len(keys)] == keys
            if keys[: len(override)] == override or made_up:
                return typed
        for end in range(len(keys), 0, -1):
            if line := self.lines.get(keys[:end]):
                return f"{self.name}:{line}"
        return self.name


def _assignment(override: str) -> tuple[str, object]:
    """What `a.b=c` says."""
    name, separator, text = override.partition("=")
    if not separator or not all(name.strip().split(".")):
        typed = f"--set {plain(name.strip())}{separator}".rstrip()
        what = "it gives no value" if not separator else "it names no setting"
        raise ConfigError(f"{typed}: {what}; write it as field.subfield=value")
    try:
        return name.strip(), yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"--set {name.strip()}: the value is not valid YAML ({_yaml_problem(error)}); quote it"
        ) from None


def _refuse_halves(document: _Document) -> None:
    """No file can hold half of a character, as a byte that is no UTF-8 becomes one on the command line."""
    left: list[tuple[Keys, object]] = [((), document.data)]
    seen = set()
    while left:
        keys, value = left.pop()
        if isinstance(value, Mapping | list | tuple):
            if id(value) not in seen:  # YAML can name a thing twice, also within itself
                seen.add(id(value))
                inner = value.items() if isinstance(value, Mapping) else enumerate(value)
                left.extend(((*keys, str(key)), each) for key, each in inner)
        elif isinstance(value, str) and not _is_whole(value):
            raise ConfigError(
                f"{document.place(keys)}: it is {value!a}: a part of it is not UTF-8; rename what it "
                "names, or use a locale that knows UTF-8 (LC_ALL=C.UTF-8)"
            )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _laid_over(data: Mapping[str, object], keys: Keys, value: object, typed: str) -> dict[str, object]:
    key, rest = keys[0], keys[1:]
    if not rest:
        return {**data, key: value}
    inner = data.get(key)
    if inner is None:
        inner = {}
    if not isinstance(inner, Mapping):
        raise ConfigError(f"{typed}: {key} is not a mapping, so it has no field {rest[0]}; set {key} as a whole")
    return {**data, key: _laid_over(inner, rest, value, typed)}


# --- reading files ---------------------------------------------------------------------------------------


def _read(path: Path) -> _Document:
    readers = {".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: the suffix is {path.suffix!r}; allowed: {', '.join(readers)}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from None
    return reader(str(path), text)


class _Loader(yaml.SafeLoader):
    """YAML without dates: a run that is called 2026-01-31 is called so, as a string."""


_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read_yaml(name: str, text: str) -> _Document:
    lines: dict[Keys, int] = {}
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return _Document(name)
            _index_yaml(name, node, (), lines, set())
            data: object = loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError(f"{where}: it is not valid YAML: {_yaml_problem(error)}") from None
    return _Document(name, _fields(data, name), lines)


def _fields(data: object, name: str) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"{name}: it holds a {type(data).__name__}; allowed: fields with their values")
    return data


def _yaml_problem(error: Exception) -> str:
    return str(getattr(error, "problem", None) or str(error) or type(error).__name__)


def _index_yaml(name: str, node: yaml.Node, keys: Keys, lines: dict[Keys, int], seen: set[int]) -> None:
    """Note the line of every key; YAML would take the last of two equal keys in silence, so refuse them."""
    if id(node) in seen:  # an alias, which may even contain itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for n, item in enumerate(node.value):
            lines[*keys, str(n)] = item.start_mark.line + 1
            _index_yaml(name, item, (*keys, str(n)), lines, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path, line = (*keys, str(key.value)), key.start_mark.line + 1
            if path in lines and key.value != "<<":
                raise ConfigError(f"{name}:{line}: {'.'.join(path)} is there twice, first on line {lines[path]}")
            lines[path] = line
            _index_yaml(name, value, path, lines, seen)


def _read_toml(name: str, text: str) -> _Document:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = re.search(r" \(at line (\d+), column \d+\)", str(error))
        where, problem = (f"{name}:{at[1]}", str(error).replace(at[0], "")) if at else (name, str(error))
        raise ConfigError(f"{where}: it is not valid TOML: {problem}") from None
    return _Document(name, data, _index_toml(text))


def _index_toml(text: str) -> dict[Keys, int]:
    """Note the line of every key as well as can be told from the lines alone: tomllib keeps no positions."""
    lines: dict[Keys, int] = {}
    table: Keys = ()
    counts: dict[Keys, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)([^\[\]=]+)\]", line):
            table = _toml_keys(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, str(counts[table]))
            lines.setdefault(table, number)
        elif assignment := re.match(r"""\s*([\w."' -]+?)\s*=""", line):
            lines.setdefault((*table, *_toml_keys(assignment[1])), number)
    return lines


def _toml_keys(dotted: str) -> Keys:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


# --- saying what is wrong --------------------------------------------------------------------------------


def _mistake(model_cls: type[BaseModel], document: _Document, details: ErrorDetails) -> str:
    loc = details["loc"]
    keys = _keys(document.data, loc)
    parents, kind = _annotations(model_cls, loc[:-1]), details["type"]
    if kind == "extra_forbidden":
        names = [name for parent in parents for name in _field_names(parent)]
        close = difflib.get_close_matches(str(loc[-1]), names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        problem = f"there is no such field; {hint}allowed: {', '.join(dict.fromkeys(names))}"
    elif kind == "missing":
        problem = "it is required, and missing"
    elif kind == "model_type":  # which names a class of ours
        problem = "input should be fields with their values" + _given(_annotations(model_cls, loc), details["input"])
    elif kind == "tuple_type":  # which files have no word for
        problem = "input should be a list" + _given(_annotations(model_cls, loc), details["input"])
    else:
        message = details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        problem = message[:1].lower() + message[1:] + _given(_annotations(model_cls, loc), details["input"])
    return f"{document.place(keys)}: {problem}"


def _given(annotations: list[object], value: object) -> str:
    """Show the value that was given, if it is short and surely no secret."""
    flat = [kind for annotation in annotations for kind in _flat(annotation)]
    if not flat or SecretStr in flat or SecretBytes in flat or not isinstance(value, str | int | float | None):
        return ""
    return f" (it is {value!r})" if len(repr(value)) <= 80 else ""


def _keys(data: object, loc: Sequence[int | str]) -> Keys:
    """Return where in the document an error is: pydantic's location without a union's member names."""
    keys: list[str] = []
    for n, part in enumerate(loc):
        if isinstance(data, Mapping) and (part in data or n == len(loc) - 1):
            keys.append(str(part))
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            keys.append(str(part))
            data = data[part]
    return tuple(keys)


def _annotations(model_cls: type[BaseModel], loc: Sequence[int | str]) -> list[object]:
    """Return the types that a location can have in the model."""
    found: list[object] = [model_cls]
    for part in loc:
        flat = [kind for annotation in found for kind in _flat(annotation)]
        inner = [annotation for kind in flat for annotation in _inner(kind, part)]
        # A part that leads nowhere is the name or the tag of one member of a union.
        found = inner or [kind for kind in flat if _is_member(kind, part)] or flat
    return found


def _flat(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _flat(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _flat(member)
    else:
        yield annotation


def _inner(kind: object, part: int | str) -> Iterator[object]:
    arguments = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if part in (name, info.alias):
                yield info.annotation
    elif arguments and isinstance(part, int):
        yield arguments[0]
    elif len(arguments) == 2 and get_origin(kind) is not Literal:
        yield arguments[1]


def _is_member(kind: object, part: int | str) -> bool:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    tags = [tag for info in kind.model_fields.values() for tag in get_args(info.annotation)]
    return part == kind.__name__ or part in tags


def _field_names(annotation: object) -> list[str]:
    return [
        info.alias or name
        for kind in _flat(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, info in kind.model_fields.items()
    ]
