"""Writes the variants of the eight applications of `../variants.yaml`, and their load.

They are stand-ins: plausible in size and shape, but not measured. Run it again after a change:

    python examples/scenarios/variants/stand_ins.py

An application has two or three architectures of rising accuracy and work. Each of them is there as
trained and in eight bits (some tenths of a percent less accurate, 1.6 times as fast on cores), on
one, two or four cores, and on 10 or 50 percent of a GPU, on which a batch takes a fixed time and a
tenth of the time for each item. 22 architectures make 175 variants.

The traces last a simulated day of forty minutes in steps of ten seconds, with spikes, and by day
with four times the load of the night; the applications' shares follow Zipf's law. Each has a mean
of one request per second, so that `scale` in the scenario is the mean rate.
"""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
BATCHES = (1, 2, 4, 8, 16, 32, 64)
STEP_S = 10
DAY_S = 2400
LEFT_OUT = 1  # of 22 architectures with 8 variants each


class Network(NamedTuple):
    """An architecture: its accuracy, a request's milliseconds on a core, its size in MB."""

    name: str
    accuracy: float
    item_ms: float
    memory_mb: float


FAMILIES = {
    "objects": (
        Network("mobile", 0.713, 18, 60),
        Network("middle", 0.762, 55, 160),
        Network("large", 0.797, 140, 380),
    ),
    "faces": (Network("mobile", 0.905, 12, 50), Network("middle", 0.962, 60, 250)),
    "scenes": (
        Network("mobile", 0.52, 20, 60),
        Network("middle", 0.56, 60, 200),
        Network("large", 0.585, 170, 500),
    ),
    "vehicles": (
        Network("mobile", 0.88, 15, 60),
        Network("middle", 0.92, 45, 150),
        Network("large", 0.94, 120, 350),
    ),
    "speech": (Network("small", 0.91, 40, 150), Network("large", 0.955, 160, 600)),
    "sentiment": (
        Network("small", 0.86, 8, 40),
        Network("middle", 0.91, 45, 260),
        Network("large", 0.935, 140, 450),
    ),
    "questions": (
        Network("small", 0.77, 25, 100),
        Network("middle", 0.86, 80, 450),
        Network("large", 0.90, 260, 1300),
    ),
    "translation": (
        Network("small", 0.68, 35, 120),
        Network("middle", 0.74, 90, 400),
        Network("large", 0.77, 220, 900),
    ),
}
SHAPES = ((1, 0), (2, 0), (4, 0))


def variants(network: Network) -> list[dict[str, object]]:
    """Eight of them: three sizes with two precisions on cores, and two shares of a GPU."""
    found = []
    for bits, lost, quicker in (("fp32", 0.0, 1.0), ("int8", 0.004, 1.6)):
        for cores, _ in SHAPES:
            item_ms = network.item_ms / quicker / cores**0.85
            fixed_ms = 0.15 * item_ms
            found.append(
                variant(network, f"{bits}-c{cores}", lost, cores, 0, fixed_ms, item_ms, 1 / quicker)
            )
    for share in (10, 50):
        item_ms = network.item_ms / 60 * (50 / share) ** 0.7
        fixed_ms = 3 + network.item_ms / 12
        found.append(variant(network, f"gpu{share}", 0.0, 1, share, fixed_ms, item_ms, 1.0))
    return found


def variant(  # noqa: PLR0913, PLR0917  an entry has so many columns
    network: Network,
    kind: str,
    lost: float,
    cpu: int,
    gpu: int,
    fixed_ms: float,
    item_ms: float,
    part: float,
) -> dict[str, object]:
    """An entry of a file of variants."""
    weights_mb = network.memory_mb * part
    return {
        "name": f"{network.name}-{kind}",
        "architecture": network.name,
        "accuracy": round(network.accuracy - lost, 4),
        "cpu": cpu,
        "gpu": gpu,
        "memory_mb": round(150 + weights_mb + (400 if gpu else 0)),
        "load_s": round(0.5 + weights_mb / 200 + (3 if gpu else 0), 2),
        "latencies_ms": {str(b): round(fixed_ms + item_ms * b, 3) for b in BATCHES},
    }


def day(draw: random.Random) -> list[float]:
    """Rates by step: calm at night, by day four times as much, now and then twice as much."""
    steps = DAY_S // STEP_S
    phase = draw.uniform(-0.05, 0.05)
    rates = [1 - 0.6 * math.cos(2 * math.pi * (at / steps + phase)) for at in range(steps)]
    for _ in range(3):
        first, height = draw.randrange(steps - 6), draw.uniform(1.6, 2.2)
        for at in range(first, first + draw.randrange(3, 7)):
            rates[at] *= height
    return [rate * draw.uniform(0.95, 1.05) for rate in rates]


def main() -> None:
    """Write all of them."""
    draw = random.Random(11)  # noqa: S311  not for secrets
    for family, networks in FAMILIES.items():
        entries = [entry for network in networks for entry in variants(network)]
        if family == "translation":
            entries = entries[:-LEFT_OUT]
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
        text = f'{{"app": "{family}", "variants": [\n{lines}\n]}}\n'
        (HERE / f"{family}.json").write_text(text, encoding="utf-8")
        rates = day(draw)
        per_minute = 60 * len(rates) / sum(rates)
        with (HERE / f"{family}.csv").open("w", encoding="utf-8", newline="") as file:
            rows = [(at * STEP_S, round(rate * per_minute, 2)) for at, rate in enumerate(rates)]
            csv.writer(file, lineterminator="\n").writerows(
                [("start_s", "requests_per_minute"), *rows]
            )


if __name__ == "__main__":
    main()
