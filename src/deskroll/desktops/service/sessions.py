"""Sessions: who holds what. One session a holder process, not one a lease.

Guarantees: when a session ends, by its own wish, with its connection or because it gave no sign of life, every desktop
it held is taken back, and whatever it waits for is called off. What was told of a plan is forgotten with the last
session that told anything of it.
"""

from __future__ import annotations

import asyncio
import secrets

from deskroll.desktops.lease import Lease
from deskroll.desktops.pool import Pool
from deskroll.desktops.service.wire import Lost


class Session:
    """One holder process."""

    def __init__(self, client: str, ttl: float, now: float, plan: str = "") -> None:
        self.id = secrets.token_urlsafe(16)
        self.client = client
        self.plan = plan
        """The plan that its leases belong to."""
        self.told = False
        """Whether it has told how many leases its plan comes to, as others may have."""
        self.ttl = ttl
        self.leases: dict[str, Lease] = {}
        self.asking: set[str] = set()
        """Requests that wait."""
        self.events: asyncio.Queue[Lost | None] = asyncio.Queue()
        """What to tell the holder; None: nothing more, the session is over."""
        self.watched = False
        """Whether its connection is its sign of life."""
        self.ended = ""
        self._expires_at = now + ttl

    def renew(self, now: float) -> None:
        """It gave a sign of life."""
        self._expires_at = now + self.ttl

    def expired(self, now: float) -> bool:
        """Whether it gave none for too long."""
        return not self.watched and now > self._expires_at

    def tell(self, lease: Lease) -> None:
        """Let the holder know that it has lost a desktop."""
        if self.leases.pop(lease.id, None) is not None:
            self.events.put_nowait(Lost(lease=lease.id, reason=lease.lost))

    def tell_death(self, lease: Lease) -> None:
        """Let the holder know that its desktop died, and of what."""
        if lease.id in self.leases:
            self.events.put_nowait(Lost(lease=lease.id, death=lease.death))


class Sessions:
    """All holder processes of one service."""

    def __init__(self, pool: Pool, ttl: float) -> None:
        self._pool = pool
        self._ttl = ttl
        self._sessions: dict[str, Session] = {}

    def begin(self, client: str, now: float, plan: str = "") -> Session:
        """A holder process has come."""
        session = Session(client or f"client-{secrets.token_hex(2)}", self._ttl, now, plan)
        self._sessions[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """The session of that id, None when there is none any more."""
        return self._sessions.get(session_id)

    def end(self, session: Session, reason: str) -> None:
        """Take back all that a session holds, and forget it."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.ended = reason
        for lease_id in list(session.asking):
            self._pool.withdraw(lease_id, reason)
        leases, session.leases = list(session.leases), {}
        for lease_id in leases:
            self._pool.revoke(lease_id, reason)
        if session.told and not any(each.told and each.plan == session.plan for each in self._sessions.values()):
            self._pool.forget(session.plan)
        session.events.put_nowait(None)

    def end_expired(self, now: float) -> None:
        """End those that gave no sign of life for too long."""
        for session in [session for session in self._sessions.values() if session.expired(now)]:
            self.end(session, f"its holder {session.client} gave no sign of life for {session.ttl:g} s")

    def end_all(self, reason: str) -> None:
        """End every session."""
        for session in list(self._sessions.values()):
            self.end(session, reason)
