"""Which of the tasks: by domain, id and app.

Guarantees: a name that fits no task is an `InputError` that says what there is; nothing is left out for a typing error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from deskroll.errors import InputError, did_you_mean, plain
from deskroll.tasks.apps import app_of
from deskroll.types import Record, Task

_MOST_SHOWN = 30


class Selection(Record, frozen=True):
    """A task is selected if it fits all of these; an empty one fits every task."""

    domains: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """Ids, or their first characters where only one task's id begins so."""
    apps: tuple[str, ...] = ()
    """Apps of which a task names one (`related_apps`), however it spells it."""

    def __bool__(self) -> bool:
        return bool(self.domains or self.ids or self.apps)


def related_apps(task: Task) -> tuple[str, ...]:
    """The apps that a task names, each by its one name."""
    named = task.metadata.get("related_apps")
    if isinstance(named, str):
        named = [named]
    if not isinstance(named, Sequence):
        return ()
    return tuple(dict.fromkeys(app_of(each).name for each in named if isinstance(each, str) and each.strip()))


def select(tasks: Sequence[Task], only: Selection, where: str) -> list[Task]:
    """The tasks that fit; `where` says where they are from, for error messages."""
    ids = {find_task(tasks, each, where).id for each in only.ids}
    apps = {app_of(each).name for each in only.apps}
    refuse_unknown("domain", only.domains, Counter(task.domain for task in tasks if task.domain), where)
    refuse_unknown("app", sorted(apps), Counter(app for task in tasks for app in related_apps(task)), where)
    found = [
        task
        for task in tasks
        if (not only.domains or task.domain in only.domains)
        and (not ids or task.id in ids)
        and (not apps or apps.intersection(related_apps(task)))
    ]
    if not found:
        asked = {"domain": only.domains, "task": only.ids, "app": only.apps}
        said = "; ".join(f"{name} {' or '.join(map(plain, names))}" for name, names in asked.items() if names)
        raise InputError(f"{where}: none of its {len(tasks):,} tasks fits all that is asked for ({said}); ask for less")
    return found


def find_task(tasks: Iterable[Task], name: str, where: str) -> Task:
    """The task of that id, or the only one whose id begins so."""
    known = {task.id: task for task in tasks}
    if name in known:
        return known[name]
    close = [each for each in known if name and each.startswith(name)]
    if len(close) > 1:
        raise InputError(
            f"{where}: {len(close)} tasks' ids begin with {plain(name)!r}: {_listed(close)}; write more of it"
        )
    if not close:
        raise InputError(
            f"{where}: there is no task {plain(name)!r}{did_you_mean(name, known)}; there are: {_listed(known)}"
        )
    return known[close[0]]


def refuse_unknown(what: str, asked: Sequence[str], there: Counter[str], where: str) -> None:
    """Refuse a name that fits no task; `there`: what there is, and of how many tasks."""
    for name in asked:
        if name not in there:
            shown = ", ".join(f"{plain(each)} ({count})" for each, count in sorted(there.items())) or "none"
            raise InputError(
                f"{where}: there is no {what} {plain(name)!r}{did_you_mean(name, there)}; there are: {shown}"
            )


def _listed(names: Iterable[str]) -> str:
    every = [plain(each) for each in names]
    more = f", and {len(every) - _MOST_SHOWN:,} more" if len(every) > _MOST_SHOWN else ""
    return ", ".join(every[:_MOST_SHOWN]) + more
