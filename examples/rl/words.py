"""The words of the example: all that its model can read and say."""

NUMBERS = tuple(str(number) for number in range(1, 9))
PRESS = "press"
NAMES = (
    "about", "accept", "account", "add", "agree", "align", "allow", "apply", "archive", "attach", "back", "bold",
    "border", "browse", "build", "cancel", "center", "chart", "chat", "check", "clear", "clip", "close", "shift",
    "color", "comment", "connect", "continue", "copy", "create", "crop", "cut", "debug", "decline", "delete",
    "deploy", "detach", "details", "disable", "discard", "download", "draw", "edit", "email", "enable", "encode",
    "erase", "exit", "expand", "export", "fetch", "file", "fill", "filter", "find", "finish", "fit", "flip", "folder",
    "font", "forward", "freeze", "grid", "group", "hide", "home", "image", "import", "indent", "insert", "install",
    "invite", "join", "keep", "label", "launch", "layer", "leave", "left", "link", "list", "load", "lock", "login",
    "logout", "mail", "mark", "menu", "merge", "mirror", "mode", "move", "mute", "new", "next", "note", "open",
    "order", "outline", "page", "paint", "pan", "paste", "pause", "pin", "play", "plot", "post", "preview", "print",
    "profile", "publish", "quit", "read", "record", "redo", "refresh", "reload", "remove", "rename", "replace",
    "reply", "report", "reset", "resize", "restore", "rotate", "save",
)  # fmt: skip
"""Of buttons."""
TRAIN_NAMES, EVAL_NAMES = NAMES[0::4] + NAMES[1::4] + NAMES[2::4], NAMES[3::4]
"""Names that are trained on, and names that are not."""
END, UNKNOWN = "<end>", "<unknown>"
VOCABULARY = (END, UNKNOWN, PRESS, *NUMBERS, *NAMES)
