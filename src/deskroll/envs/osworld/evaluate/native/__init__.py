"""Getters and metrics of our own: for the bundled suite, and for what upstream's package lacks.

Office documents, JSON and text are read with the standard library; PDFs need pypdf, images Pillow and numpy, all of the
extra `local`. What a model left behind is hostile: it is read within limits, in a process of its own (`bounded`), and
what cannot be read scores 0; what stands in the task and cannot be read is the evaluator's failure.
"""
