"""A run, conducted for a person: its models answer, it is opened, shown, interrupted in good order, and summed up.

The command line, the Python API and the documents' script all run it from here.

run.py         one run from beginning to end        api.py         `deskroll.run`, for Python
models.py      models that answer before it begins  loops.py       from plain code, in notebooks and threads
view.py        its progress, status and plan        interrupts.py  Ctrl-C, once, twice, three times
log_lines.py   log lines above the progress         program.py     a program's errors and exit codes
console.py, terminals.py   where it is all printed
"""
