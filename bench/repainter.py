"""Runs inside a desktop: a window that answers each click after a delay, in one or several strokes.

The delay in milliseconds is the x of the click within the window, the number of strokes its y divided by 10. Each click
shows a new colour; when the last stroke is on the screen, a line goes to the log: click number and time.
"""

import sys
import time

from Xlib import X
from Xlib.display import Display

COLOURS = (0xD1495B, 0x00798C, 0xEDAE49, 0x30638E, 0x8D6A9F, 0x2A9D8F)
STROKE_S = 0.04


def main(log: str, feedback: bool) -> None:
    display = Display()
    window = display.screen().root.create_window(
        50, 50, 640, 480, 0, display.screen().root_depth, background_pixel=0xFFFFFF,
        event_mask=X.ButtonPressMask | X.ExposureMask,
    )  # fmt: skip
    window.set_wm_name("repainter")
    window.map()
    pen = window.create_gc()
    clicks = 0
    while True:
        event = display.next_event()
        if event.type != X.ButtonPress:
            continue
        clicks += 1
        began = time.monotonic()
        if feedback:  # as a button does: a pressed look at once, the answer later
            pen.change(foreground=0x999999)
            window.fill_rectangle(pen, 500, 440, 100, 30)
            display.sync()
        strokes = max(1, event.event_y // 10)
        for stroke in range(strokes):
            due = began + event.event_x / 1000 + stroke * STROKE_S
            time.sleep(max(0.0, due - time.monotonic()))
            pen.change(foreground=COLOURS[clicks % len(COLOURS)] + stroke)
            window.fill_rectangle(pen, 0, 0, 640, 480)
            display.sync()
        with open(log, "a") as out:
            out.write(f"{clicks} {time.monotonic()}\n")


main(sys.argv[1], sys.argv[2] == "feedback")
