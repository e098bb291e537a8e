"""Latency tables, coefficients and traces: our stand-ins, and data measured by others.

Measured data is stored beside the checkout and not in it. Where it is available, each test that
uses `data` (`conftest.py`) also runs with it.
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
        measured: Whether others have measured them; otherwise they are the examples' stand-ins.
    """

    measured: bool

    def table(self, model: str) -> Path:
        """Return the latencies of a model by size, as in INFless (ASPLOS'22)."""
        return _MEASURED / "profiles" / f"{model}.csv" if self.measured else self._own(model)

    def trace(self, name: str) -> Path:
        """Return a load over time."""
        return _MEASURED / "traces" / f"{name}.csv" if self.measured else self._own(name)

    @property
    def coefficients(self) -> Path:
        """Coefficients of VGG-19 on Function Compute.

        They are those of HarmonyBatch (IWQoS'24), or close to them.
        """
        return _MEASURED / "harmonybatch/vgg19.json" if self.measured else self._own("tagging.json")

    def either(self, stand_in: T, measured: T) -> T:
        """Return the expectation of a test for this data."""
        return measured if self.measured else stand_in

    def _own(self, name: str) -> Path:
        return (_SCENARIOS / name).with_suffix(Path(name).suffix or ".csv")


STAND_INS = Data(measured=False)
MEASURED = [Data(measured=True)] if _MEASURED.is_dir() else []
