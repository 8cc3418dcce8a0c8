"""Tests with the real libraries of other people's loops: `make test-trainers`, in .venv-trainers."""
