"""What this machine and its kernel are asked for, in one place: processes, sandboxes, sockets, owners.

owner.py          which process something belongs to, and whether that is gone
runtime_folder.py where deskroll keeps what it needs while it runs, on this host
supervise.py      background work that cannot die unseen; backoff.py how long to wait before trying again
zygote/           a process that has imported what its forks need; forking.py what all that fork have in common
sockets.py        messages that carry open files
listen.py         where a service listens, and who is at the other end; tokens.py who may use it
relay.py          bytes carried from socket to socket
control_group.py  limits for several programs together; memory_watch.py whose want of memory a program was killed for
bubblewrap.py     the command that starts a sandbox; launch.py what it is started by, where that is root
sandboxed.py      one sandbox, as whoever started it holds it
syscalls.py       the numbers of system calls, for each kind of machine
seccomp.py        filters of system calls, made from names, and put on the calling process
code_rules.py     what code in a sandbox may not call, and what one process there may not do to the others
keyring.py        a session keyring of the calling process's own
home.py           paths that begin with ~; below.py opens files below a folder, and nowhere else
console.py        a console that obeys nothing in what it prints
"""
