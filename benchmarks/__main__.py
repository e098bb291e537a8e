"""``python -m benchmarks [NAME ...]``: run the benchmark called NAME, or all of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import (
    ablation,
    aims,
    batch_law,
    busy_law,
    compare,
    cost,
    grouping,
    jumps,
    lazy,
    live,
    live_steps,
    matrix,
    operators,
    overload,
    partition,
    placement,
    planning,
    polling,
    prewarm,
    selection,
    shares,
    simulator,
    start,
    variants,
)
from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS: dict[str, Callable[[list[str]], int]] = {
    "servers": compare.main,
    "ablation": ablation.main,
    "aims": aims.main,
    "batch-law": batch_law.main,
    "busy-law": busy_law.main,
    "cost": cost.main,
    "grouping": grouping.main,
    "jumps": jumps.main,
    "lazy": lazy.main,
    "live": live.main,
    "live-steps": live_steps.main,
    "matrix": matrix.main,
    "operators": operators.main,
    "overload": overload.main,
    "partition": partition.main,
    "placement": placement.main,
    "planning": planning.main,
    "polling": polling.main,
    "prewarm": prewarm.main,
    "selection": selection.main,
    "shares": shares.main,
    "simulator": simulator.main,
    "start": start.main,
    "variants": variants.main,
}


def main(argv: list[str]) -> int:
    """Run the benchmarks named on the command line; return 0 only if all of them ran."""
    name, flags = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else ("", argv)
    if name and name not in BENCHMARKS:
        sys.stderr.write(f"benchmarks: {name!r} is not known; known: {', '.join(BENCHMARKS)}\n")
        return 2
    try:
        return max(BENCHMARKS[each](flags) for each in ([name] if name else BENCHMARKS))
    except CarpoolError as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
