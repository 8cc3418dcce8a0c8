"""Weights: versions of a model that somebody writes, found, checked, and brought into a server that runs."""
