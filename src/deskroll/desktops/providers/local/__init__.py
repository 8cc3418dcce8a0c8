"""Embedded desktops: Xvfb, openbox, AT-SPI and a guest server in bubblewrap namespaces of their own.

Who runs where:

    provider.py   in the caller's process: asks for desktops and waits for them
    running.py    one desktop, as the provider holds it
    wire.py       what they say to each other
    keeper.py     one process a desktop, forked by a zygote that has imported the guest already: makes the desktop's
                  sandbox, puts the guest inside, and takes everything away again when the owner asks, when the owner
                  dies, or when a part of the desktop dies
    watching.py   until when, and where the cause lies when it dies
    sandbox.py    what the inside looks like (bubblewrap's arguments)
    namespaces.py how the guest gets inside without paying for its imports again
    network.py    the way out of those that have the network; routes.py where it does not lead
    limits.py     limits of each process
    shims.py      the few files that a desktop has and the host has not: pyautogui, sudo, python
    checks.py     whether this machine can run them; packages.py what it has to install
    places.py     where on the host a desktop's files lie, and which desktops there are
"""
