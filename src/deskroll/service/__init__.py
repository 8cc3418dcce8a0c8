"""The rollout service: batches of tasks in, from a source that is polled; closed groups out, to consumers.

loop.py      poll, refresh weights, run, store; stop        config.py    its settings
ledger.py    which batches there were, in which round       parts.py     what it holds beside its runtime
checking.py  whether a batch can be run, and was            serving.py   for a person: what is shown, Ctrl-C
stream.py    closed groups, each once for a consumer        consumer.py  what a consumer has done, durably
follow.py    closed groups, as the journal tells them       window.py    the next of them, and no more
routes.py    the same over HTTP
"""
