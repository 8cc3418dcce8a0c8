"""Drives one X display and nothing else: look, type, click, list windows, read the accessibility tree, record.

Runs only inside a desktop's guest process. Everything here is blocking unless it says `async`; the guest puts it
on a thread with a deadline, so a wedged X server costs that thread and its desktop, nobody else.
"""
