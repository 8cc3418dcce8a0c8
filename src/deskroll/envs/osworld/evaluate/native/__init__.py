"""Getters and metrics of our own: for the bundled suite, for tasks of one's own, and for what upstream's package lacks.

Documents are read with python-docx, python-pptx, openpyxl and pypdf, all of the extra `local`. What a model left behind
is hostile: it is read within limits, in a process of its own (`bounded`), and what cannot be read scores 0.
"""
