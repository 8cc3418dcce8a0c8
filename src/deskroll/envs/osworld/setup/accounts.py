"""The files that hold an account, as the settings name them.

Guarantees: what they hold is in no message; a task cannot name a file of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import SetupError

T = TypeVar("T", bound=msgspec.Struct)


class Account(msgspec.Struct, frozen=True):
    """Who logs in at Google: OSWorld's `settings/google/settings.json`."""

    email: str
    password: str

    def __repr__(self) -> str:
        return "Account(...)"


class DriveKey(msgspec.Struct, frozen=True):
    """What opens a drive: the file that pydrive or Google's own tools keep after somebody has consented."""

    client_id: str
    client_secret: str
    refresh_token: str
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105  (an address)

    def __repr__(self) -> str:
        return "DriveKey(...)"


def check(kind: str, settings: OSWorldSettings) -> None:
    """Raise `SetupError` where a step of that kind needs an account that is not given."""
    if kind == "login":
        google_account(settings)
    elif kind == "googledrive":
        drive_key(settings)


def google_account(settings: OSWorldSettings) -> Account:
    """The account that the desktop's browser logs in with."""
    return _read(settings.google_account, Account, "google_account", "email and password")


def drive_key(settings: OSWorldSettings) -> DriveKey:
    """The key to the drive that tasks are prepared on."""
    return _read(settings.google_drive, DriveKey, "google_drive", "client_id, client_secret and refresh_token")


def _read(name: str, kind: type[T], setting: str, holds: str) -> T:
    if not name:
        raise SetupError(
            f"it needs an account at Google, and none is given; set env_options.{setting} to a JSON file with {holds}, "
            f"or leave the task out"
        )
    try:
        return msgspec.json.decode(Path(name).read_bytes(), type=kind)
    except OSError as error:
        raise SetupError(f"{setting}: {name}: it cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError:
        # Its own words might quote what the file holds.
        raise SetupError(f"{setting}: {name} is not a JSON object with {holds}") from None
