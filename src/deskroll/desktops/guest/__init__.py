"""The guest protocol: a server that runs inside a desktop, and the client that is the one async `Desktop`.

Inside the desktop:

    main.py       the guest process; settings.py what it has to know before it starts
    home/         what every new home holds: default programs, no animations
    session.py    the parts of an X session: started, checked, named when one dies
    machine.py    one desktop as the routes see it: look, act, settle, step
    processes.py  programs that run in the desktop, with time and output limits; marks.py finds them again
    kernel.py     what the kernel says of its processes
    files.py      its files; terminal.py the text of its terminal
    server.py     the HTTP application: token, errors, routes; requests.py reads what comes in
    routes/       OSWorld's endpoints and ours, a file for each group

Outside:

    client.py     speaks all of it; stock.py to a guest that has only OSWorld's endpoints
    transport.py  HTTP to one guest, which is not to be trusted
    forward.py    a way to any port of the desktop (both ends)
    relay.py      the guest on a TCP port
"""
