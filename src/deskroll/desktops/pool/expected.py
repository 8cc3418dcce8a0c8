"""Expected: how many desktops will still be leased, as those who lease them have told.

A plan is told by its name, with the number of leases that it comes to in all, those that it has had included: so it
does not matter what arrives first, a request or the news that a plan has changed. Plain data: no clock, no tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool.queue import Request


class Expected:
    """Every plan that was told."""

    def __init__(self) -> None:
        self.to_come: dict[DesktopSpec, int] = {}
        """By spec: leases that were told and not granted yet, of all plans."""
        self._told: dict[str, dict[DesktopSpec, int]] = {}
        self._granted: dict[str, Counter[DesktopSpec]] = {}

    def __contains__(self, plan: str) -> bool:
        return plan in self._told

    def tell(self, plan: str, leases: Mapping[DesktopSpec, int]) -> None:
        """So many leases the plan comes to in all, as it is known now."""
        self._told[plan] = dict(leases)
        self._granted.setdefault(plan, Counter())
        self._add_up()

    def forget(self, plan: str) -> None:
        """Nobody knows any more what it comes to."""
        self._told.pop(plan, None)
        self._granted.pop(plan, None)
        self._add_up()

    def granted(self, request: Request) -> None:
        """A request has been served."""
        if request.plan in self._told:
            self._granted[request.plan][request.spec] += 1
            self._add_up()

    def _add_up(self) -> None:
        total: Counter[DesktopSpec] = Counter()
        for plan, leases in self._told.items():
            granted = self._granted[plan]
            for spec, number in leases.items():
                total[spec] += max(0, number - granted[spec])
        self.to_come = {spec: number for spec, number in total.items() if number}
