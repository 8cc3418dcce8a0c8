"""Runs on disk, made once."""

from tests.report.conftest import full_run, hostile_run

__all__ = ["full_run", "hostile_run"]
