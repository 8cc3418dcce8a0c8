"""Where episodes run: one file a backend, all behind one small interface."""

from deskroll.rollout.backends.base import Backend, BackendContext, WorkerVitals, backend_kind

__all__ = ["Backend", "BackendContext", "WorkerVitals", "backend_kind"]
