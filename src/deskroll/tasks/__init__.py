"""What to attempt: reads task files into `Task` records, selects among them, and says what they need.

load.py      every form that tasks are kept in; reading.py: JSON, with the place of what is wrong
osworld.py   OSWorld's suites and folders; suites.py: suites that are part of a package
select.py    which of them: domain, id, app
batches.py   those of a service, as they come; batches_folder.py, batches_file.py, batches_http.py; aside.py: bad ones
sources.py   those of a training run: which, and from where
needs.py     what a task needs, from what it says; apps.py: the programs; verdict.py: whether a place has it all
"""

from deskroll.tasks.load import load_tasks, parse_task, task_digest
from deskroll.tasks.select import Selection
from deskroll.tasks.suites import is_bundled, tasks_folder

__all__ = ["Selection", "is_bundled", "load_tasks", "parse_task", "task_digest", "tasks_folder"]
