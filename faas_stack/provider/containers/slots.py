"""Which of some equal things (cores, GPUs) each instance gets: those with the least on them.

Pure bookkeeping of one provider; what others do with the same things it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Slots"]


class Slots:
    """Equal things by name, and how much of each is taken."""

    def __init__(self, names: Sequence[str]) -> None:
        self._load = dict.fromkeys(names, 0.0)

    def __len__(self) -> int:
        return len(self._load)

    def check(self, name: str, count: int, what: str) -> None:
        """Whether ``count`` could be taken at all.

        Raises:
            ConfigError: there are not as many; ``name`` asked for them.
        """
        if count > len(self._load):
            raise ConfigError([Problem(name, str(count), f"at most {len(self._load)} {what}")])

    def take(self, count: int, share: float = 1.0) -> tuple[str, ...]:
        """The ``count`` names with the least on them, which now have ``share`` more each."""
        order = list(self._load)
        chosen = sorted(order, key=lambda name: (self._load[name], order.index(name)))[:count]
        self.hold(chosen, share)
        return tuple(sorted(chosen, key=order.index))

    def hold(self, names: Iterable[str], share: float = 1.0) -> None:
        """Note that ``names`` are in use already."""
        for name in names:
            if name in self._load:
                self._load[name] += share

    def give_back(self, names: Iterable[str], share: float = 1.0) -> None:
        """Undo what `take` or `hold` noted."""
        self.hold(names, -share)
