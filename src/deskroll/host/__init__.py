"""What this machine's kernel is asked for, in one place: filters of system calls, keyrings, sandboxes for code.

syscalls.py     the numbers of system calls, for each kind of machine
seccomp.py      filters of system calls, made from names, and put on the calling process
keyring.py      a session keyring of the calling process's own
code_rules.py   what code in a sandbox may not call, and what one process there may not do to the others
bubblewrap.py   the command that starts a sandbox for code; launch.py what it is started by, where that is root
sandboxed.py    one sandbox, as whoever started it holds it
home.py         paths that begin with ~; below.py opens files below a folder, and nowhere else
console.py      a console that obeys nothing in what it prints
"""
