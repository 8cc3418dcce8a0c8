"""What JSON files say."""

from __future__ import annotations

import json

from deskroll.envs.osworld.evaluate.native.values import Config, File


def json_value(file: File, config: Config) -> object:
    """What a file holds, as Python's own reader takes it."""
    found: object = json.loads(file.data.decode())
    return found
