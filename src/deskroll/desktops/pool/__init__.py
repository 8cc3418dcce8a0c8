"""The pool: many holders share a few desktops.

queue.py     who waits, in which order
slot.py      one desktop's state          fleet.py   all of them, counted
expected.py  how many leases are to come
meter.py     how busy, how long, what limits
boot_failures.py  boots that keep failing
roster.py    the state machine over these: pure, every event a method, every answer a list of effects
effects.py   what the state machine wants done
pool.py      carries that out, many at a time, and hands out leases
config.py    size, limits and patience    status.py  what goes on, as a record
"""

from deskroll.desktops.pool.config import PoolConfig
from deskroll.desktops.pool.pool import Pool
from deskroll.desktops.pool.queue import Quotas
from deskroll.desktops.pool.status import DesktopStatus, PoolStatus

__all__ = ["DesktopStatus", "Pool", "PoolConfig", "PoolStatus", "Quotas"]
