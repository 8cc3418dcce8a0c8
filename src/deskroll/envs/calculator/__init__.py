"""The calculator: arithmetic on plain numbers here and at once, everything else by sympy in a process with limits."""
