"""CheckpointRefused: why weights are not served, with the file and the tensor that are wrong.

Raised before any server is touched: what is served stays.
"""

from __future__ import annotations

import enum

from deskroll.errors import DeskrollError


class Refusal(enum.StrEnum):
    """Why weights are refused."""

    NO_VERSION = "no_version"
    """The folder's name does not end in a number, or another folder has the same one."""
    WENT_BACK = "went_back"
    """The version is not above the one that is served."""
    OTHER_KIND = "other_kind"
    """An adapter where whole weights are served, or the other way round."""
    NOT_LOADED = "not_loaded"
    """A server did not take it."""
    NO_FILES = "no_files"
    """A folder without weights."""
    MISSING_FILE = "missing_file"
    """A file that the index names is not there, or the folder is gone: renamed, or removed."""
    UNREADABLE = "unreadable"
    """A file may not be read, or is no regular file."""
    TRUNCATED = "truncated"
    """A file ends before what it says that it holds."""
    BAD_HEADER = "bad_header"
    """A file or an index that says nothing sensible about what it holds."""
    BAD_OFFSETS = "bad_offsets"
    """Tensors that do not lie one after the other in their file, or whose size is not that of their shape."""
    MISSING_TENSOR = "missing_tensor"
    """A tensor of what is served is not there."""
    EXTRA_TENSOR = "extra_tensor"
    """A tensor that what is served has not."""
    OTHER_SHAPE = "other_shape"
    """A tensor has another shape than in what is served."""
    OTHER_DTYPE = "other_dtype"
    """A tensor has another kind of numbers than in what is served."""


class CheckpointRefused(DeskrollError):
    """Weights that are not served; `str` is complete for a person."""

    def __init__(self, reason: Refusal, message: str, *, file: str = "", tensor: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.file = file
        """The file or folder that is wrong."""
        self.tensor = tensor
        """The tensor that is, where it is about one."""
