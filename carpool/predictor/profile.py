"""What profiling finds out: how long operators take in place or alone, and how long models do.

The rows of a profile database, as values. Where they are kept and how they are measured is not
known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from carpool.predictor.graph import Case

__all__ = ["Alone", "OperatorRow", "Origin", "Overhead", "Profile", "RunRow", "Setting"]


class Setting(NamedTuple):
    """What a measurement was taken with.

    Attributes:
        batch: Requests in the batch.
        threads: Of the runtime, one a core.
        gpu: Percent of one GPU.
    """

    batch: int
    threads: int
    gpu: float = 0.0


class Origin(NamedTuple):
    """What a measurement was taken on.

    Attributes:
        hardware: The processor's name.
        runtime: The runtime's name and version.
        device: ``cpu`` or ``cuda``.
    """

    hardware: str
    runtime: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Equal operators of one model at one setting.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
        count: How often the model has it.
        median_s: Seconds that one of them takes.
        spread_s: The middle half of its measurements lies within so many seconds.
    """

    case: Case
    setting: Setting
    count: int
    median_s: float
    spread_s: float


class Alone(NamedTuple):
    """An operator that was measured as a graph of one node.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
        moved_mb: What was moved through the caches before each run, as the rest of a model does.
        seconds: The median.
    """

    case: Case
    setting: Setting
    moved_mb: int
    seconds: float


class Refused(NamedTuple):
    """An operator that the runtime does not run as a graph of one node.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
    """

    case: Case
    setting: Setting


class Overhead(NamedTuple):
    """What a run costs on a machine besides its operators.

    Attributes:
        per_run_s: Seconds, of any run.
        per_operator_s: Seconds for each operator; below 0 where timing it costs more.
    """

    per_run_s: float
    per_operator_s: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """A whole model at one setting.

    Attributes:
        setting: Batch, threads, GPU.
        median_s: Seconds of a run.
        p90_s: What 90 of 100 runs stay below.
        p95_s: Likewise 95.
        p99_s: Likewise 99.
        spread_s: The middle half of the runs lies within so many seconds.
        samples: How many runs these are of.
    """

    setting: Setting
    median_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    spread_s: float
    samples: int


@dataclass(frozen=True, slots=True)
class Profile:
    """One model, measured.

    Attributes:
        model: Its name.
        origin: What it was measured on.
        runs: Whole runs.
        operators: Their parts.
        load_s: Seconds to load it.
        memory_mb: The most memory it took.
        fingerprint: Of its graph, by which it is known again under another name.
    """

    model: str
    origin: Origin
    runs: tuple[RunRow, ...]
    operators: tuple[OperatorRow, ...]
    load_s: float = 0.0
    memory_mb: float = 0.0
    fingerprint: str = ""
