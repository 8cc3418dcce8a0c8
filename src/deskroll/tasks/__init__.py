"""What to attempt: reads task files into `Task` records."""

from deskroll.tasks.load import load_tasks, parse_task, task_digest

__all__ = ["load_tasks", "parse_task", "task_digest"]
