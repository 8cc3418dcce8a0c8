"""The pre-imported parent of all keepers: one process a provider, started once, small and single-threaded.

It has imported everything that a guest needs, so that a desktop's guest is a fork and not an import. It does nothing
but fork a keeper for each request and tell its pid (whatever happens to a keeper, its provider knows whom to end), and
ends when the provider closes the control socket (or dies).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys

from deskroll.desktops.providers.local import keeper
from deskroll.desktops.providers.local.namespaces import set_process_name
from deskroll.desktops.providers.local.wire import Started, encode_report, receive_request


def serve(control: socket.socket) -> None:
    """Fork a keeper for each request until the control socket closes."""
    keeper.import_guest()
    # Moves all that was imported out of the collector's sight: forks then share its pages instead of copying them.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here waits for keepers; the kernel buries them
    control.send(b"ready")
    while (message := receive_request(control)) is not None:
        request, files = message
        if (pid := os.fork()) == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                code = keeper.keep(request, *files)
            finally:
                os._exit(code)  # a fork must never return into its parent's code
        with contextlib.suppress(OSError):  # the provider is gone; its keeper sees that, too
            os.write(files[0], encode_report(Started(keeper_pid=pid)))
        for file in files:
            os.close(file)


if __name__ == "__main__":
    set_process_name("deskroll-nurse")
    # Ctrl-C in a terminal goes to the whole group; when to stop is the provider's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
