"""Set-up steps: what is done to a desktop before the agent sees it, and (`postconfig`) before it is judged.

steps.py      the table of all steps; checks and performs them
records.py    what each step is told, as OSWorld's files write it
context.py     what steps may use besides the desktop
commands.py   execute, command, launch; windows.py open, activate_window, close_window
downloads.py  download: fetched by this machine once, kept as OSWorld keeps it; locks.py one fetch at a time
bodies.py     answers over HTTP, bounded
cdp.py        a client of Chromium's debugging port; tabs.py chrome_open_tabs, chrome_close_tabs
history.py    update_browse_history (history.sql: the tables of Chromium's own file)
accounts.py   the files that hold an account; drive.py googledrive; login.py login
"""

from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.steps import STEPS, bundled_files, check_steps, perform

__all__ = ["STEPS", "SetupContext", "bundled_files", "check_steps", "perform"]
