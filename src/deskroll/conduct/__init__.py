"""A run, conducted for a person: it is opened, shown, interrupted in good order, and summed up.

The command line, the Python API and the documents' script all run it from here.

run.py         one run from beginning to end   api.py         `deskroll.run`, for Python
view.py        its progress, status and plan   loops.py       from plain code, in notebooks and threads
log_lines.py   log lines above the progress    interrupts.py  Ctrl-C, once, twice, three times
program.py     a program's errors and codes    console.py, terminals.py   where it is all printed
"""
