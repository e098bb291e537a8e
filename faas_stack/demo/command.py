"""``carpool demo``: real models served, real predictions, and one load under two policies.

Runs the steps in order; other modules implement them. Exits with 0 only if every prediction was
right.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from faas_stack.demo import comparison, predictions, stack
from faas_stack.demo.comparison import Contest

if TYPE_CHECKING:
    from faas_stack.demo.predictions import Prediction

__all__ = ["main"]

_SLO = "200ms"
_WIDE_ROUND_S, _FILETYPE_ROUND_S = 5.0, 4.0
_ROUNDS = 2
_INTERRUPT_EXIT = 130


def main(argv: list[str]) -> int:
    """Run the demonstration and return the exit code."""
    about = "serve real models on this machine and compare batching policies, in about a minute"
    argparse.ArgumentParser(prog="carpool demo", description=about).parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM cleans up like Ctrl-C
    try:
        return _tell()
    except KeyboardInterrupt:
        _say("\nInterrupted; everything has been stopped.")
        return _INTERRUPT_EXIT


def _tell() -> int:
    began = time.monotonic()
    _say("Carpool serves models behind the OpenFaaS API and batches their requests.\n")
    _say("1. Models: building the examples ...")
    with stack.models() as examples:
        right = _serve(examples)
    _say(f"   done after {time.monotonic() - began:.0f} s")
    if not right:
        _say("\nFAILED: at least one prediction was wrong; see section 3.")
    return 0 if right else 1


def _serve(examples: Path) -> bool:
    """Run and narrate the steps that need the models; return whether all predictions were right."""
    _say("   filetype  what kind of file is this? (the trained model of Google's Magika)")
    _say("   resnet50  ResNet-50 with random weights, for its arithmetic")
    _say("   wide      a 512-4096-4096-512 network with random weights, for its memory traffic\n")
    _say("2. Functions: starting provider, sidecars and handlers, as `carpool up` does ...")
    with stack.up(examples) as address:
        _say(f"   ready at http://{address}/function/NAME\n")
        right = asyncio.run(_show_predictions(address, examples))
        asyncio.run(_show_duels(address))
        _say("\n5. Stopping: answering requests in flight, ending all processes ...")
    return right


async def _show_predictions(address: str, examples: Path) -> bool:
    _say("3. Predictions, each checked against the magika package or ONNX Runtime itself:")
    files = await predictions.filetypes(address)
    shown = [*files, await predictions.image(address, examples)]
    shown.append(await predictions.vectors(address, examples))
    width = max(len(prediction.input) for prediction in shown)
    for prediction in shown:
        _say(_line(prediction, width))
    return all(prediction.right for prediction in shown)


def _line(prediction: Prediction, width: int) -> str:
    mark = "ok   " if prediction.right else "WRONG"
    company = f", in a batch of up to {prediction.batch}" if prediction.batch > 1 else ""
    return f"   {mark} {prediction.input:<{width}}  {prediction.output}{company}"


async def _show_duels(address: str) -> None:
    _say("\n4. The same load without batching (none) and with the policy deadline:")
    with tempfile.TemporaryDirectory(prefix="carpool-demo-") as folder:
        vector = Path(folder) / "vector.json"
        row = [(i * 37 % 101) / 50 - 1 for i in range(512)]
        vector.write_bytes(predictions.tensor_body("x", [1, 512], row))
        policies = ("none", "deadline")
        wide = dict(zip(policies, ("wide-none", "wide"), strict=True))
        files = dict(zip(policies, ("filetype-none", "filetype"), strict=True))
        await _show_duel("wide", Contest(address, wide, vector, _SLO, _WIDE_ROUND_S, _ROUNDS))
        contest = Contest(address, files, Path(__file__), _SLO, _FILETYPE_ROUND_S, _ROUNDS)
        await _show_duel("filetype", contest)


async def _show_duel(name: str, contest: Contest) -> None:
    capacities = await comparison.calibrate(contest)
    rate_rps, _ = comparison.choose_rate(capacities)
    _say(f"\n   {name}: {comparison.announcement(capacities)}")
    results = await comparison.run_rounds(contest, rate_rps)
    for line in comparison.table(results, contest.slo).splitlines():
        _say(f" {line}")
    _say(f"   In words: {comparison.verdict(results, contest.slo, rate_rps)}.")
    for result in results:
        for warning in result.load.warnings():
            _say(f"   Note ({result.policy}): {warning}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
