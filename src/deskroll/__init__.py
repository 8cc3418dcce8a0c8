"""deskroll runs computer-use agents in parallel over a shared pool of real desktops."""

from importlib import metadata

try:
    __version__ = metadata.version("deskroll")
except metadata.PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
