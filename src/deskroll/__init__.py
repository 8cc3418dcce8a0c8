"""deskroll runs computer-use agents in parallel over a shared pool of real desktops."""

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """`__version__`, looked up when asked for: reading package metadata costs a tenth of a `--help`."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version("deskroll")
    except metadata.PackageNotFoundError:  # a checkout that was not installed
        return "0+unknown"
