"""Waiting until functions are ready, and reporting where they are: as a table or as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from carpool import durations
from carpool.errors import CarpoolError
from faas_stack.interrupts import say
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from faas_stack.provider.logs import last_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from faas_stack.provider.local.local_function import LocalFunction
    from faas_stack.provider.logs import LogRing

__all__ = ["as_json", "as_table", "until_ready"]

_POLL_S = 0.02
_HANDLER = "handler: "


class _StartFailed(CarpoolError):
    """Raised when a function does not become ready."""


async def until_ready(function: LocalFunction, ready_s: float) -> None:
    """Wait until one function is ready, reporting progress.

    Raises:
        _StartFailed: The function is not ready in time, or keeps failing.
    """
    name, replicas = function.deployment.service, function.replica_set
    loop = asyncio.get_running_loop()
    began = loop.time()
    say(f"{name}: starting")
    while replicas.available < function.replicas:
        if replicas.failing or loop.time() - began > ready_s:
            how = "keeps failing" if replicas.failing else f"is not ready after {ready_s:g} s"
            lines = replicas.log.since(0)
            raise _StartFailed(last_words(f"{name} {how}", replicas.reason, lines))
        await asyncio.sleep(_POLL_S)
    say(f"{name}: ready after {loop.time() - began:.1f} s")
    for note in _notes(replicas.log):
        say(f"{name}: {note}")


def _notes(log: LogRing) -> list[str]:
    """Return the handlers' notes on the function's code and model, each once."""
    texts = [line.text for line in log.since(0)]
    return list(dict.fromkeys(text for text in texts if text.startswith(_HANDLER)))


def as_json(
    url: str, functions: Sequence[LocalFunction], scaler: str, credentials: Path | None
) -> str:
    """Return everything as one line of JSON.

    Args:
        url: URL of the provider.
        functions: The ready functions.
        scaler: URL of the scaler for users; empty if there is none.
        credentials: Folder with the provider's credentials; None if it requires none.
    """
    result: dict[str, Any] = {"url": url, "functions": [_row(url, each) for each in functions]}
    if scaler:
        result["scaler"] = scaler
    if credentials:
        result["credentials"] = str(credentials)
    return json.dumps(result) + "\n"


def as_table(url: str, functions: Sequence[LocalFunction]) -> str:
    """Return a table with a line for each function."""
    cells = [("FUNCTION", "URL", "REPLICAS", "BATCH", "SLO")]
    for row in (_row(url, function) for function in functions):
        slo = durations.format(row["slo_s"]) if row["slo_s"] else "-"
        cells.append((row["name"], row["url"], str(row["replicas"]), row["batch_policy"], slo))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in cells
    )


def _row(url: str, function: LocalFunction) -> dict[str, Any]:
    deployment, settings = function.deployment, function.deployment.settings
    default = deployment.namespace == DEFAULT_NAMESPACE
    path = deployment.service if default else f"{deployment.service}.{deployment.namespace}"
    return {
        "name": deployment.service,
        "url": f"{url}/function/{path}",
        "replicas": function.replicas,
        "batch_policy": settings.batch_policy,
        "slo_s": settings.slo_s,
    }
