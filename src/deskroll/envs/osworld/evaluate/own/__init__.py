"""Evaluators of a task's own: `func: "file:my_check.py:check"`, a function in a file beside the tasks.

Native getters find what it is given. The function runs in a sandbox of the kind that models' code has
(`envs/interpreter`): the file comes with tasks, what it reads comes from an agent, and neither is trusted; unlike
OSWorld's own code it asks the desktop nothing, so it needs no relay and nothing of OSWorld's package.

named.py   the name, and the file     judging.py   one part judged     inside.py   what runs in the sandbox
"""
