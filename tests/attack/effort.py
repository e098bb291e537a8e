"""How much of an attack is tried, and the count of what was.

Every module of attacks asks the fixture ``effort``: a table is counted as a whole (`count`), what
has no end is a loop over `rounds`. In the suite the loops are short. ``make attack`` is the long
form: ``attack_count`` is the share of the full number, ``attack_seconds`` the most that one loop
may take, and the counts are printed at the end.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["PROPERTY", "Effort", "table"]

PROPERTY = "attacked"  # of a test's report: what, and how many


class Effort:
    """How much one test tries.

    Args:
        record: notes a property of the test's report, so that counts reach the process that prints.
        env: ``attack_count`` and ``attack_seconds``; without the first the short form is run.
    """

    def __init__(
        self, record: Callable[[str, object], None], env: Mapping[str, str] = os.environ
    ) -> None:
        self._record = record
        share = env.get("attack_count", "")
        self._share = float(share) if share else None
        self._seconds = float(env.get("attack_seconds", "") or 600)

    def some(self, names: Iterable[str], short: int) -> list[str]:
        """All of ``names`` in the long form, the first ``short`` in the suite."""
        return list(names) if self._share is not None else list(names)[:short]

    def count(self, what: str, number: int) -> None:
        """Note that ``number`` attacks of the kind ``what`` were tried."""
        self._record(PROPERTY, [what, number])

    def rounds(self, what: str, *, full: int, short: int) -> Iterator[int]:
        """Numbers from 0 on, for as many attacks as are to be tried; they are counted.

        Draw each attack from its number, as a seed: if number N fails, number N can be tried again.

        Args:
            what: the kind.
            full: how many in the long form.
            short: how many in the suite.
        """
        end_s = time.monotonic() + self._seconds
        tried: list[object] = [what, 0]  # told even if the loop does not come to its end
        self._record(PROPERTY, tried)
        for number in range(short if self._share is None else self._long(full)):
            tried[1] = number + 1
            yield number
            if self._share is not None and time.monotonic() > end_s:
                return

    def _long(self, full: int) -> int:
        assert self._share is not None
        return max(1, round(full * self._share))


def table(reports: Iterable[Any]) -> list[str]:
    """The table of counts: what was tried, how often, and how many of the tests failed."""
    tried: dict[str, int] = {}
    failed: dict[str, int] = {}
    for report in reports:
        for what, number in [value for name, value in report.user_properties if name == PROPERTY]:
            tried[what] = tried.get(what, 0) + number
            failed[what] = failed.get(what, 0) + report.failed
    width = max(map(len, tried), default=0)
    return [
        f"{what:{width}}  {number:>9,}  {f'{failed[what]} failed' if failed[what] else 'held'}"
        for what, number in sorted(tried.items())
    ]
