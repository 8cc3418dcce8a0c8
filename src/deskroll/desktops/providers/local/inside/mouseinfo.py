"""Stands in for the `mouseinfo` package, which pyautogui imports for one window and which wants Tk."""


def MouseInfoWindow(*_args: object, **_kwargs: object) -> None:  # noqa: N802  (the name that pyautogui imports)
    """Refuse: this desktop has no Tk."""
    raise NotImplementedError("pyautogui.mouseInfo() needs Tk, which this desktop does not have")
