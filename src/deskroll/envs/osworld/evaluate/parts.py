"""Reads a task's `evaluator`: OSWorld's `{func, result, expected, options, conj, postconfig}` as parts.

Guarantees: every part has a metric by name, a getter of the state and, where one is given, a getter of what is
expected, each an object with a `type`. Lists that are shorter than `func`, or null, leave those parts without.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deskroll.errors import InputError
from deskroll.types import Record

INFEASIBLE = "infeasible"
"""The metric that judges the ending alone."""


class Conj(enum.StrEnum):
    """How several parts come to one score."""

    AND = "and"
    """0 as soon as one is 0, else their mean."""
    OR = "or"
    """1 as soon as one is 1, else the largest."""


class Getter(Record, frozen=True):
    """How one value is found."""

    type: str
    config: Mapping[str, Any]
    """All that the task says of it, `type` included, as getters take it."""


class Part(Record, frozen=True):
    """One metric with what it compares."""

    func: str
    result: Getter | None = None
    expected: Getter | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def getters(self) -> tuple[Getter, ...]:
        """Those that it has."""
        return tuple(each for each in (self.result, self.expected) if each is not None)


class Evaluation(Record, frozen=True):
    """A task's evaluator."""

    parts: tuple[Part, ...]
    conj: Conj = Conj.AND
    postconfig: tuple[Mapping[str, Any], ...] = ()

    @property
    def infeasible(self) -> bool:
        """Whether the task cannot be done, and is solved by saying so."""
        return any(part.func == INFEASIBLE for part in self.parts)


def evaluation_of(evaluator: Mapping[str, Any]) -> Evaluation:
    """Read an evaluator that has a `func`; `InputError` names the field that is wrong."""
    func = evaluator.get("func")
    funcs = func if isinstance(func, list) else [func]
    if not funcs or not all(isinstance(each, str) and each for each in funcs):
        raise InputError(f"evaluator.func is {func!r}; allowed: a metric's name, or a list of names")
    listed = isinstance(func, list)
    results = _parallel(evaluator, "result", len(funcs), listed=listed)
    expected = _parallel(evaluator, "expected", len(funcs), listed=listed)
    options = _parallel(evaluator, "options", len(funcs), listed=listed)
    parts = tuple(
        Part(
            func=name,
            result=_getter(results[n], "result"),
            expected=_getter(expected[n], "expected"),
            options=_object(options[n] or {}, "options"),
        )
        for n, name in enumerate(funcs)
    )
    conj = evaluator.get("conj") or Conj.AND
    if conj not in list(Conj):
        raise InputError(f"evaluator.conj is {conj!r}; allowed: {', '.join(Conj)}")
    steps = evaluator.get("postconfig") or []
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not all(isinstance(s, Mapping) for s in steps):
        raise InputError("evaluator.postconfig must be a list of set-up steps")
    return Evaluation(parts=parts, conj=Conj(conj), postconfig=tuple(steps))


def _parallel(evaluator: Mapping[str, Any], name: str, count: int, *, listed: bool) -> list[Any]:
    """One value a metric; a single object beside a list of metrics is for the first of them, options are for all."""
    given = evaluator.get(name)
    if isinstance(given, list):
        if not listed and len(given) > 1:
            raise InputError(f"evaluator.{name} is a list of {len(given)}, and evaluator.func is a single name")
        if len(given) > count:
            raise InputError(f"evaluator.{name} has {len(given)} entries for {count} metrics in evaluator.func")
        return [*given, *[None] * (count - len(given))]
    if name == "options":
        return [given] * count
    return [given, *[None] * (count - 1)]


def _getter(given: object, name: str) -> Getter | None:
    if given is None or given == {}:
        return None
    config = _object(given, name)
    kind = config.get("type")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"evaluator.{name}.type is {kind!r}; allowed: a getter's name")
    return Getter(type=kind, config=config)


def _object(given: object, name: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"evaluator.{name} is missing or not an object")
    return given
