"""Evaluators of OSWorld's format."""
