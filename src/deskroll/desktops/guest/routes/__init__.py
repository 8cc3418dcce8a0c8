"""The endpoints: `observe`, `execute`, `windows`, `files`, `recording` are OSWorld's; `ours` are deskroll's own.

Fields and status codes of OSWorld's endpoints are those of OSWorld's own server, so that what was written for it works
unchanged. Where that server would hang or answer 500 for no reason, ours does not.
"""

from aiohttp import web

from deskroll.desktops.guest.machine import Machine

MACHINE: web.AppKey[Machine] = web.AppKey("machine", Machine)
