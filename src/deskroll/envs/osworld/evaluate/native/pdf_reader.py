"""Reads a PDF from standard input and writes the texts of its pages as JSON: the program that `pdf` runs.

It imports nothing of deskroll's, so that it starts at once.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys

from pypdf import PdfReader


def main(cpu_s: int, memory: int) -> None:
    """Confine this process, and read."""
    data = sys.stdin.buffer.read()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    logging.disable(logging.CRITICAL)
    reader = PdfReader(io.BytesIO(data))
    pages = ["\n".join(" ".join(line.split()) for line in page.extract_text().splitlines()) for page in reader.pages]
    json.dump(pages, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
