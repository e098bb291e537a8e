"""Measure planning by policy and number of functions: ``python -m benchmarks planning``.

Times are CPU time for all functions together: of the first round, in which nothing is known, and of
the fastest of the steady ones that follow (`planning_rounds` describes the functions). With
``--against DIR`` the tree in DIR plans the same, alternating with this one. Each number is the
lowest of several turns, because other programs only make it slower.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["main"]

_ROOT = Path(__file__).parent.parent
_ROUNDS = Path(__file__).with_name("planning_rounds.py")
_POLICIES = ("fixed", "openfaas", "infless", "batch", "harmonybatch", "infaas")
_FUNCTIONS = (10, 100, 1000)
_STEADY = 4  # rounds after the first
_MS = 1000


class Seconds(NamedTuple):
    """CPU seconds of the first and of a steady round."""

    first: float = math.inf
    steady: float = math.inf

    def least(self, other: Seconds) -> Seconds:
        """Return the elementwise minimum."""
        return Seconds(min(self.first, other.first), min(self.steady, other.steady))


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks planning", description=__doc__)
    add = parser.add_argument
    add("--against", type=Path, action="append", default=[], metavar="DIR", help="another tree")
    add("--policy", action="append", metavar="NAME", help=f"({', '.join(_POLICIES)})")
    add("--functions", type=int, action="append", metavar="N", help="(10, 100, 1000)")
    add("--turns", type=int, default=3, help="of each tree (3)")
    flags = parser.parse_args(argv)
    trees = list(dict.fromkeys([_ROOT, *(path.resolve() for path in flags.against)]))
    heads = "".join(f"{f'{tree.name}: first':>20}{'steady, ms':>13}" for tree in trees)
    print(f"{'policy':<14}{'functions':>9}{heads}")
    for policy in flags.policy or _POLICIES:
        for count in flags.functions or _FUNCTIONS:
            best = dict.fromkeys(trees, Seconds())
            for turn in range(flags.turns):
                for tree in trees[turn % len(trees) :] + trees[: turn % len(trees)]:
                    best[tree] = best[tree].least(_measured(tree, policy, count))
            cells = "".join(
                f"{_MS * each.first:>20.1f}{_MS * each.steady:>13.1f}" for each in best.values()
            )
            print(f"{policy:<14}{count:>9}{cells}", flush=True)
    return 0


def _measured(tree: Path, policy: str, functions: int) -> Seconds:
    """Run one turn of a tree in its own process."""
    # -P: the folder of the script has modules named as packages of ours are.
    command = [sys.executable, "-P", str(_ROUNDS), policy, str(functions), str(_STEADY)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    first, *steady = json.loads(done.stdout)["cpu_s"]
    return Seconds(first, min(steady))
