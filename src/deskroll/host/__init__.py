"""What this machine's kernel is asked for, in one place: filters of system calls, keyrings.

syscalls.py   the numbers of system calls, for each kind of machine
seccomp.py    filters of system calls, made from names, and put on the calling process
keyring.py    a session keyring of the calling process's own
home.py       paths that begin with ~
"""
