"""A zygote: a process that has imported what its forks need, so that starting one takes milliseconds, not imports.

wire.py      what the two sides tell each other
process.py   the zygote: forks for each request, and tells how each fork ended
handle.py    the zygote as whoever started it holds it
"""

from deskroll.host.zygote.handle import READY_S, Fork, ZygoteHandle

__all__ = ["READY_S", "Fork", "ZygoteHandle"]
