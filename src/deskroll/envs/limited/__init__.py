"""Calls of functions within limits: in a process of their own, which may take so much time and memory and no more.

For what works on text that nobody vouches for (a model's formula, a stranger's page). `limited` guarantees: the
caller's event loop never waits for the function; of one calling process no more run at once than there are cores, the
others wait their turn in the order of asking; what counts against a call is its own time, never the time that others
kept it from a core, so that the same call has the same outcome on an idle machine and on a busy one; a call that is
cancelled ends its process; none outlives the calling process, however that ends. What the machine does to a call (its
process is killed, the server hangs) is no outcome: the call is made once more, and then raises `LimitedLost`. Functions
must therefore be pure.

The process has none of the caller's environment variables and open files, and it is confined, unless the call says
otherwise because the function reads files: a sandbox (`sandbox`) with nothing in it but what Python imports from, and
no further process, so that a file that takes its reader over has got nowhere, and is gone with it. Calls that are not
confined, and all where bubblewrap can make no sandbox, are the same user's: what takes them over can read what the user
can. `envs/interpreter` is for code.

Each call is a fork of a small server (`server`), which is started with the first call, one of each kind for each
process that calls, and has imported what the functions need: a call takes milliseconds, not the start of a Python.
"""

from deskroll.envs.limited.call import (
    Bounds,
    Budget,
    BudgetSpent,
    FunctionCrashed,
    FunctionFailed,
    LimitedError,
    LimitedLost,
    LimitExceeded,
    limited,
)

__all__ = [
    "Bounds",
    "Budget",
    "BudgetSpent",
    "FunctionCrashed",
    "FunctionFailed",
    "LimitExceeded",
    "LimitedError",
    "LimitedLost",
    "limited",
]
