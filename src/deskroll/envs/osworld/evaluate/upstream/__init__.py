"""OSWorld's own getters and metrics (PyPI `desktop-env`), unmodified, in an environment and a sandbox of their own.

names.py      what the package offers
place.py      where the environment is; install.py makes it (`deskroll osworld install`), from packages.lock
worker.py     the program inside the sandbox: stands alone, imports the package once, forks for each job
sandbox.py    the command that starts it; process.py one running worker; worker_pool.py those that wait for jobs
relay.py      what a job reaches of its desktop, and of nothing else
judging.py    one part judged
"""
