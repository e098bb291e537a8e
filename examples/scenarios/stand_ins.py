"""Writes the latency tables and traces of the scenarios beside it.

They are stand-ins: plausible in size and shape, but not measured. Run it again after a change:

    python examples/scenarios/stand_ins.py

A table follows from six numbers for each model. On cores alone, a batch takes a fixed time and a
time for each item, which falls with the number of cores. With a share of a GPU, there is another
fixed time, and for each item some time on the host, which falls with the cores, and some on the
GPU, which falls slowly with its share, as small models seldom fill one. Instances with few cores
have no large batches.

The traces last four hours in steps of a minute, with a mean of one request per second, so that
`scale` in a scenario is the mean rate. One has a period of forty minutes, one is nearly constant
with bursts, and one is silent most of the time.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CORES = (2, 4, 8, 16)
SHARES = (0, 10, 20, 30, 40, 50)
BATCHES = (1, 2, 4, 8, 16, 32)
BATCH_PER_CORE = 2
STEP_S = 60
STEPS = 240


class Times(NamedTuple):
    """Milliseconds of a model: fixed and for each item on two cores; fixed, host and GPU."""

    cores_fixed: float
    cores_item: float
    gpu_fixed: float
    gpu_host: float
    gpu_item: float
    cores_gain: float = 0.8

    def of(self, batch: int, cores: int, share: int) -> float:
        """A batch on an instance."""
        if not share:
            return self.cores_fixed + self.cores_item * batch * (2 / cores) ** self.cores_gain
        return self.gpu_fixed + batch * (
            self.gpu_host / cores + self.gpu_item * (10 / share) ** 0.2
        )


MODELS = {
    "ssd": Times(85, 100, 95, 50, 22),
    "mobilenet": Times(70, 50, 74, 14, 6),
    "resnet-50": Times(20, 130, 40, 12, 10),
    "textcnn-69": Times(2.6, 0.42, 2.8, 0.3, 0.05),
    "lstm-2365": Times(5.0, 1.6, 6.0, 1.2, 0.25),
    "dssm": Times(1.8, 0.2, 2.2, 0.15, 0.03),
}


def rows(times: Times) -> list[tuple[object, ...]]:
    """A table, without the batches that are too large for the cores."""
    return [
        (cores, share, batch, round(times.of(batch, cores, share), 2))
        for cores in CORES
        for share in SHARES
        for batch in BATCHES
        if batch <= BATCH_PER_CORE * cores
    ]


def traces() -> dict[str, list[float]]:
    """Rates by minute, before they are scaled to a mean of one a second."""
    draw = random.Random(7)  # noqa: S311  not for secrets
    periodic = [1 - 0.8 * math.cos(2 * math.pi * at / 40) for at in range(STEPS)]
    bursty = [1 + 0.1 * draw.random() for _ in range(STEPS)]
    sporadic = [0.0] * STEPS
    for first in range(10, STEPS, 24):
        at = first + draw.randrange(12)
        for minute in range(at, min(at + draw.randrange(2, 5), STEPS)):
            bursty[minute] = 2 + 2 * draw.random()
        at = first + draw.randrange(12)
        for minute in range(at, min(at + draw.randrange(1, 4), STEPS)):
            sporadic[minute] = 0.5 + draw.random()
    return {"periodic": periodic, "bursty": bursty, "sporadic": sporadic}


def write(name: str, head: tuple[str, ...], lines: list[tuple[object, ...]]) -> None:
    """Write a CSV file beside this one."""
    with (HERE / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *lines])


def main() -> None:
    """Write all of them."""
    for name, times in MODELS.items():
        write(f"{name}.csv", ("cpu_threads", "gpu_percent", "batch", "latency_ms"), rows(times))
    for name, rates in traces().items():
        per_minute = 60 * STEPS / sum(rates)
        lines: list[tuple[object, ...]] = [
            (at * STEP_S, round(rate * per_minute, 2)) for at, rate in enumerate(rates)
        ]
        write(f"{name}.csv", ("start_s", "requests_per_minute"), lines)


if __name__ == "__main__":
    main()
