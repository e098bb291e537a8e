"""Simulates billions of requests whose batches wait for instances, with ``batch_queue.c``.

The C program shares nothing with the laws that it judges: it draws its own arrivals, and applies
the batcher's rule (`sidecar.core.batcher`) to one batch after the other. It takes 3 to 8 ns for a
request. A C compiler, ``cc``, is needed.
"""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from carpool.arrivals.processes import Times

    Counts: TypeAlias = npt.NDArray[np.uint32]

__all__ = ["Batching", "Histogram", "latency_counts"]

_SOURCE = Path(__file__).with_suffix(".c")
_RANDOM_WORDS = 32  # state of its random numbers


class Batching(NamedTuple):
    """Batches on a number of instances.

    Attributes:
        size, window_s: Requests in a full batch, and longest wait for them.
        seconds: Execution times of batches of 1, 2 and so on requests.
        instances: Number of instances.
    """

    size: int
    window_s: float
    seconds: Sequence[float]
    instances: int


class Histogram(NamedTuple):
    """How latencies are counted.

    Attributes:
        bin_s: Width of a bin.
        bins: Number of bins; the last one has all longer latencies too.
    """

    bin_s: float
    bins: int = 1 << 18

    def quantiles(self, counts: npt.NDArray[np.integer], shares: Sequence[float]) -> Times:
        """Return the latencies in seconds at these shares of requests, shape (shares,)."""
        up_to = np.concatenate([[0], np.cumsum(counts)])
        wanted = np.asarray(shares) * up_to[-1]
        places = np.searchsorted(up_to, wanted, side="right") - 1
        within = (wanted - up_to[places]) / counts[places]
        found: Times = (places + within) * self.bin_s
        return found


def latency_counts(
    batching: Batching,
    rates_rps: tuple[float, float],
    phase_ends_s: Times,
    histogram: Histogram,
    seed: Sequence[int],
    from_s: float = 0.0,
) -> Counts:
    """Return how many latencies are in each bin.

    Args:
        batching: The batches.
        rates_rps: Requests per second in the even and in the odd phases.
        phase_ends_s: When each phase ends, ascending; with the last one, the simulation does.
        histogram: The bins.
        seed: Seed of the random numbers.
        from_s: Batches that begin earlier are not counted.

    Raises:
        ValueError: There are more than 1024 instances or requests in a batch.
    """
    words = np.random.SeedSequence(seed).generate_state(_RANDOM_WORDS, np.uint64)
    counts = np.zeros(histogram.bins, np.uint32)
    too_many = _program().count_latencies(
        words.ctypes,
        np.asarray(phase_ends_s, float).ctypes,
        ctypes.c_long(len(phase_ends_s)),
        np.array(rates_rps, float).ctypes,
        ctypes.c_long(batching.size),
        ctypes.c_long(batching.instances),
        ctypes.c_double(batching.window_s),
        np.array(batching.seconds, float).ctypes,
        ctypes.c_long(histogram.bins),
        ctypes.c_double(histogram.bin_s),
        ctypes.c_double(from_s),
        counts.ctypes,
    )
    if too_many:
        message = f"{batching.size} requests in a batch, {batching.instances} instances: too many"
        raise ValueError(message)
    return counts


@cache
def _program() -> ctypes.CDLL:
    with TemporaryDirectory() as folder:
        made, library = Path(folder, "batch_queue.o"), Path(folder, "batch_queue.so")
        fast = ["-O3", "-ffast-math", "-march=native"]
        subprocess.run(["cc", *fast, "-fPIC", "-c", _SOURCE, "-o", made], check=True)
        # Linked without -ffast-math, which would round tiny numbers to 0 in the whole process.
        subprocess.run(["cc", "-shared", made, "-o", library, "-lm"], check=True)
        return ctypes.CDLL(str(library))
