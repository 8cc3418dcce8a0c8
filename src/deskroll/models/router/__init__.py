"""Many model servers behind one `Model`.

roster.py    who is asked next: a state machine without clock and without I/O
limit.py     how many requests an endpoint may have open: fixed, or learnt from its answers
circuit.py   whether an endpoint is asked at all: closed by failures, tried again one request at a time
"""
