"""The clock of a process that has this folder on its PYTHONPATH is off by as many seconds as a file says.

The file is named by JUMPING_CLOCK and read at each look, so that the clock of a process that runs can be made to jump.
(libfaketime would do this below Python, but the one in Debian 12 breaks `time.sleep`, which sleeps by another clock.)
"""

import os
import time
from pathlib import Path

_wall = time.time


def _shown() -> float:
    return _wall() + float(Path(os.environ["JUMPING_CLOCK"]).read_text() or 0)


if "JUMPING_CLOCK" in os.environ:  # what such a process starts may have been given the folder alone
    time.time = _shown
