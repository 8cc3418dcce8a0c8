"""Where episodes run: one file a backend, all behind one small interface."""

from deskroll.rollout.backends.base import Backend, WorkerVitals

__all__ = ["Backend", "WorkerVitals"]
