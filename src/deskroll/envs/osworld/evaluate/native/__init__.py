"""Getters and metrics of our own: for the bundled suite, and for what upstream's package lacks.

They need nothing besides the standard library; those on images need Pillow and numpy. What a model left behind is
hostile: sizes are bounded, and a document that cannot be read scores 0; one that the task brings and that cannot be
read is the evaluator's failure.
"""
