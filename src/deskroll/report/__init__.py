"""Results that people can trust: what a run came to, how sure that is, and what changed since another run.

outcome.py       one episode: scored or not, a success or not
intervals.py     95% intervals            significance.py   tests on pairs
stats.py         `summarise`: a run       passk.py, consumption.py   its parts
summary.py       the records of that, the content of summary.json
repeats.py       several runs             compare.py        two runs, task by task
results.py       what is read of a stored run
words.py         numbers as people read them
terminal.py      rich tables              rows.py           CSV and JSON files
html.py          one page, with page.py (its text), charts.py (its plots), screens.py (its pictures)

All statistics are pure functions over lists of `Episode`; only `results` and what shows it touch a store.
"""

from deskroll.report.compare import Comparison, compare
from deskroll.report.repeats import Repeats, repeats
from deskroll.report.stats import Plan, summarise
from deskroll.report.summary import Summary

__all__ = ["Comparison", "Plan", "Repeats", "Summary", "compare", "repeats", "summarise"]
