"""The pool as a small HTTP service, so that other processes and machines can share it.

    wire.py       the records that go to and fro, and where a service listens
    sessions.py   who holds what: one session a holder process, ended with it
    keys.py       who may do what
    sockets.py    the listening socket, and who is at the other end
    server.py     PoolService: the endpoints
    client.py     PoolClient: the interface of a `Pool`, over HTTP

Endpoints (JSON): POST /session, GET /events, POST /heartbeat, POST /leave, POST /expect, POST /lease, POST /release,
GET /status, POST /resize, POST /drain, POST /free. A session's id goes into the header `Deskroll-Session`; over TCP
every request carries the token as `Authorization: Bearer TOKEN`.
"""

from deskroll.desktops.service.client import PoolClient
from deskroll.desktops.service.keys import Client
from deskroll.desktops.service.server import PoolService
from deskroll.desktops.service.wire import pool_address

__all__ = ["Client", "PoolClient", "PoolService", "pool_address"]
