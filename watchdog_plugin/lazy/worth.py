"""Whether company pays: by the sum of the times at which all have their answers.

Slack says whether joining harms anybody's deadline, not whether it helps. Where a batch of two
takes twice as long as one, catching up makes those who run wait for nothing; so newcomers are
compared with what would become of all if they came behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from watchdog_plugin.lazy.outlook import finishes
from watchdog_plugin.lazy.table import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.lazy.rider import Rider

__all__ = ["best_size", "pays"]


def pays(stack: Sequence[Entry], riders: Sequence[Rider]) -> bool:
    """Whether all are answered sooner on average if ``riders`` go on top than behind."""
    newcomers = Entry(list(riders), 0, sum(rider.seats for rider in riders))
    joined_s = sum(after_s for _, after_s in finishes([*stack, newcomers]))
    before = [after_s for _, after_s in finishes(stack)]
    behind_s = max(before) * len(riders) + sum(after_s for _, after_s in finishes([newcomers]))
    return joined_s <= sum(before) + behind_s


def best_size(waiting: Sequence[Rider], most: int) -> int:
    """With how many of ``waiting`` an idle device should begin, one at least and ``most``.

    As if nobody else came, all were like the first, and all batches of that size but the last.
    """
    count, first = len(waiting), waiting[0]
    program = first.program
    best, least_s = 1, float("inf")
    for size in range(1, most + 1):
        batch_s = program.seconds(0, first.left, min(size * first.seats, program.batch_max))
        full, rest = divmod(count, size)
        total_s = batch_s * (size * full * (full + 1) / 2 + rest * (full + 1))
        if total_s <= least_s:
            best, least_s = size, total_s
    return best
