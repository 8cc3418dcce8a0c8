"""Simulated desktops: thousands in one process, behind the real guest protocol, for tests, benchmarks and dry runs.

provider.py   SimProvider: boots, reverts, adopts and stops them like any provider
settings.py   how long things take and how often they go wrong; times.py durations, dice.py the draws
world.py      SimWorld: the machine room, which outlives providers and writes down every misuse
desktop.py    SimDesktop: one machine, its generations and who used them
contents.py   what can be dirty: files, clipboard, windows; screen.py the picture, png.py its encoding
step.py       act and look
server.py     HTTP for all desktops of a provider on one unix socket; endpoints.py what it answers
"""
