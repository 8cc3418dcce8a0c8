"""Many model servers behind one `Model`.

roster.py     who is asked next: a state machine without clock and without I/O
limit.py      how many requests an endpoint may have open: fixed, or learnt from its answers
pins.py       models that stay served because somebody wants them to
circuit.py    whether an endpoint is asked at all: closed by failures, tried again one request at a time
router.py     the roster with a clock, looks at endpoints (looking.py) and whoever waits
service.py    the router for other processes, over a socket (wire.py); client.py is their end
own.py        the router of one run, for the servers that its settings list (endpoints.py)
"""
