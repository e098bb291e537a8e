"""``python -m benchmarks matrix``: every scaling policy on the matrix, rows kept.

As ``carpool compare --matrix``, which says what is run; the rows go to ``results/matrix.jsonl``,
each with the commit of the code that made it.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.machine import commit
from simulator.matrix import command

__all__ = ["main"]

_OUT = Path(__file__).parent / "results" / "matrix.jsonl"


def main(argv: list[str]) -> int:
    """Run what is missing from the file, and print."""
    return command.main(argv, "python -m benchmarks matrix", _OUT, commit())
