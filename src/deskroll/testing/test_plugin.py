"""What plug-ins of all kinds have in common."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from deskroll.config import Settings
from deskroll.errors import ConfigError
from deskroll.testing import Chosen


def test_it_is_whole_and_says_what_it_is(chosen: Chosen) -> None:
    """It is made from the base of its kind, lacks nothing, and has a docstring of its own."""
    assert chosen.load().__dict__.get("__doc__"), f"{chosen.name} has no docstring"


def test_what_it_needs_is_installed(chosen: Chosen) -> None:
    """Else the message says what to install."""
    chosen.load().check_installed()


def test_its_options_are_read_and_cannot_be_changed(chosen: Chosen) -> None:
    """They are settings: frozen, so that attempts which share them cannot change each other's."""
    if chosen.kind == "model":
        pytest.skip("the options that were given are the model's settings")
    settings = chosen.settings()
    assert isinstance(settings, Settings)
    for name in type(settings).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(settings, name, getattr(settings, name))


def test_an_option_that_it_does_not_have_is_refused_by_name(chosen: Chosen) -> None:
    """A misspelt option must not be ignored."""
    if chosen.load().Settings.model_config.get("extra") != "forbid":
        pytest.skip("it passes on what it does not know")
    with pytest.raises(ConfigError, match="no_such_option_at_all"):
        chosen.load().read_options({"no_such_option_at_all": 1}, "options")


def test_options_that_name_code_are_options(chosen: Chosen) -> None:
    """A run is held to the code that they name."""
    kind = chosen.load()
    fields = kind.Settings.model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias)}
    assert set(kind.code_options) <= known
