"""Where episodes run: one file a backend, all behind one small interface."""

from deskroll.rollout.backends.base import Backend, BackendContext, WorkerStatus, backend_kind

__all__ = ["Backend", "BackendContext", "WorkerStatus", "backend_kind"]
