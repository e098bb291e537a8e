"""Latency tables, coefficients and traces: stand-ins of ours everywhere, and what others measured.

Measured data is kept beside the checkout and not in it. Where it is there, each test that asks for
`data` (`conftest.py`) runs with it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = ["MEASURED", "STAND_INS", "Data"]

_ROOT = Path(__file__).resolve().parents[1]
_SCENARIOS = _ROOT / "examples" / "scenarios"
_MEASURED = _ROOT / "../shared/data"

T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """Files of one origin.

    Attributes:
        measured: Whether others have measured them; else they are the examples' stand-ins.
    """

    measured: bool

    def table(self, model: str) -> Path:
        """Latencies of a model by size, as INFless (ASPLOS'22) has them."""
        return _MEASURED / "profiles" / f"{model}.csv" if self.measured else self._own(model)

    def trace(self, name: str) -> Path:
        """A load over time."""
        return _MEASURED / "traces" / f"{name}.csv" if self.measured else self._own(name)

    @property
    def coefficients(self) -> Path:
        """Of VGG-19 on Function Compute, as HarmonyBatch (IWQoS'24) has them, or nearly those."""
        return _MEASURED / "harmonybatch/vgg19.json" if self.measured else self._own("tagging.json")

    def either(self, stand_in: T, measured: T) -> T:
        """What a test expects of this data."""
        return measured if self.measured else stand_in

    def _own(self, name: str) -> Path:
        return (_SCENARIOS / name).with_suffix(Path(name).suffix or ".csv")


STAND_INS = Data(measured=False)
MEASURED = [Data(measured=True)] if _MEASURED.is_dir() else []
