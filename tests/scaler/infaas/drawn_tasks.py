"""Random tasks: up to 25 variants that trade cost for throughput, and running instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.policies.infaas.task import Need, Option, Task

if TYPE_CHECKING:
    import random

__all__ = ["drawn_task"]


def drawn_task(draw: random.Random, needs_most: int = 1) -> Task:
    """Return a task with variants of 2 to 1000 requests per second and loads of 3 to 10 000."""
    options, profiles = [], []
    for _ in range(draw.randrange(2, 26)):
        rate_rps = 10 ** draw.uniform(0.3, 3)
        cost = rate_rps ** draw.uniform(0.5, 0.9) * draw.uniform(0.2, 1)
        gpu = draw.choice((0.0, 0.0, 0.0, 10.0, 25.0, 50.0))
        options.append(
            Option(rate_rps, cost, draw.uniform(0.5, 10), draw.choice((1.0, 2.0, 4.0)), gpu)
        )
        profiles.append((draw.uniform(0.5, 1), min(4 / rate_rps, draw.uniform(0.005, 0.1))))
    needs = []
    for _ in range(draw.randrange(needs_most) + 1):
        accuracy, slo_s = draw.uniform(0.4, 0.95), 10 ** draw.uniform(-1.5, 0)
        served_rps = tuple(
            option.rate_rps * (1 - latency_s / slo_s) ** 0.3
            if good >= accuracy and latency_s < slo_s
            else 0.0
            for option, (good, latency_s) in zip(options, profiles, strict=True)
        )
        fallback = tuple(option.rate_rps for option in options)
        needs.append(Need(10 ** draw.uniform(0.5, 4), served_rps if any(served_rps) else fallback))
    running = tuple(draw.choice((0, 0, 0, 1, 2, 5)) for _ in options)
    return Task(tuple(options), running, tuple(needs), draw.choice((0.0, 0.05, 0.1, 0.2)))
