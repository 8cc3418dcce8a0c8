"""Failure kinds: each error has one, it is stored as the same word as ever, and no stored word is unreadable."""

import importlib
import pkgutil

import msgspec
import pytest

import deskroll
from deskroll.errors import DeskrollError, DesktopLost, FailureClass, FailureKind
from deskroll.types import Failure

HOMES = ("base", "call", "exact", "judging", "commands", "cdp", "machine")
"""Modules beside `errors` that have errors of their own."""


def errors(base: type[DeskrollError] = DeskrollError) -> list[type[DeskrollError]]:
    """Every error class of deskroll's that carries a failure class."""
    found = [each for each in base.__subclasses__() if each.__module__.startswith("deskroll.")]
    return [*(each for each in found if each.failure is not None), *(more for each in found for more in errors(each))]


def test_each_error_with_a_failure_class_names_a_kind_of_its_own_which_is_its_name() -> None:
    for module in pkgutil.walk_packages(deskroll.__path__, "deskroll."):
        if any(
            part in module.name for part in ("errors", "base", "call", "exact", "judging", "commands", "cdp", "machine")
        ):
            importlib.import_module(module.name)
    named = {each.__name__: each.__dict__.get("kind") for each in errors()}
    assert len(named) > 20
    assert named == {name: FailureKind(name) for name in named}
    assert all(each in FailureKind for each in named.values() if each is not None)


@pytest.mark.parametrize("word", ["DesktopLost", "desktop_lost", "Cancelled", "ModelForbidden", "ContextTooLong"])
def test_words_that_were_ever_stored_are_the_kinds(word: str) -> None:
    stored = b'{"failure_class":"agent","kind":"%b","message":"m"}' % word.encode()
    failure = msgspec.json.decode(stored, type=Failure)
    assert failure.kind in list(FailureKind)
    assert msgspec.json.encode(failure) == stored


def test_a_word_that_nobody_knows_any_more_is_read_and_written_as_it_is() -> None:
    stored = b'{"failure_class":"model","kind":"OfAnotherVersion","message":"m"}'
    failure = msgspec.json.decode(stored, type=Failure)
    assert (failure.kind, f"{failure.kind}") == ("OfAnotherVersion", "OfAnotherVersion")
    assert failure.kind not in list(FailureKind)
    assert msgspec.json.encode(failure) == stored
    with pytest.raises(msgspec.ValidationError, match="kind"):
        msgspec.json.decode(b'{"failure_class":"model","kind":3,"message":"m"}', type=Failure)


class OfAPlugIn(DesktopLost):
    """What somebody else made of one of deskroll's errors."""


def test_an_error_that_was_made_from_another_has_its_kind() -> None:
    failure = Failure.of(OfAPlugIn("gone"))
    assert (failure.failure_class, failure.kind) == (FailureClass.DESKTOP, FailureKind.DESKTOP_LOST)
