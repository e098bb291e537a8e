"""Results of profiling: times of operators, in place or alone, and of models.

These are the rows of a profile database, as values. How they are measured and stored is decided
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from carpool.onnx_graph.operator_graph import Case

__all__ = ["Alone", "OperatorRow", "Origin", "Overhead", "Profile", "RunRow", "Setting"]


class Setting(NamedTuple):
    """Setting of a measurement.

    Attributes:
        batch: Requests in the batch.
        threads: Threads of the runtime, one per core.
        gpu: Percent of one GPU.
    """

    batch: int
    threads: int
    gpu: float = 0.0


class Origin(NamedTuple):
    """Hardware and software of a measurement.

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
    """Times of equal operators of one model at one setting.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
        count: Number of these operators in the model.
        median_s: Median seconds of one of them.
        spread_s: Interquartile range of the measurements, in seconds.
    """

    case: Case
    setting: Setting
    count: int
    median_s: float
    spread_s: float


class Alone(NamedTuple):
    """Time of an operator that was measured without the rest of its model.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
        moved_mb: MB moved through the caches before each run, to imitate the rest of a model.
        seconds: Its duration in seconds.
    """

    case: Case
    setting: Setting
    moved_mb: int
    seconds: float


class RefusedOperator(NamedTuple):
    """An operator that the runtime refuses to run without the rest of its model.

    Attributes:
        case: Kind, attributes, shapes.
        setting: Batch, threads, GPU.
    """

    case: Case
    setting: Setting


class Overhead(NamedTuple):
    """Overhead of a run on a machine, besides its operators.

    Attributes:
        per_run_s: Seconds per run.
        per_operator_s: Seconds per operator; negative where timing an operator costs more.
    """

    per_run_s: float
    per_operator_s: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """Times of a whole model at one setting.

    Attributes:
        setting: Batch, threads, GPU.
        median_s: Median seconds of a run.
        p90_s: 90th percentile.
        p95_s: 95th percentile.
        p99_s: 99th percentile.
        spread_s: Interquartile range of the runs, in seconds.
        samples: Number of runs.
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
    """Measurements of one model.

    Attributes:
        model: Name of the model.
        origin: Hardware and software of the measurements.
        runs: Times of whole runs.
        operators: Times of their operators.
        load_s: Seconds to load the model.
        memory_mb: Maximum memory it used.
        fingerprint: Hash of its graph, which identifies it under another name.
    """

    model: str
    origin: Origin
    runs: tuple[RunRow, ...]
    operators: tuple[OperatorRow, ...]
    load_s: float = 0.0
    memory_mb: float = 0.0
    fingerprint: str = ""
