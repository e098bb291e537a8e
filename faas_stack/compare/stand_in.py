"""The handler that stands in for a model: it takes as long as the model, without doing any work.

A copy of this file is a function's ``handler.py``, with the function's latency model beside it. It
runs in the stack's own interpreter, which has just written the model file.
"""

from __future__ import annotations

import os
import pickle
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.variants.variant_set import model_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import LatencyModel

FILE = "model.pickle"
_SIZE = {"carpool_cpu": 1.0, "carpool_gpu": 0.0}  # with their defaults


def load() -> None:
    """Sleep for as long as the model takes to load."""
    time.sleep(_model().load_s)  # noqa: TID251  it stands for work


def handle_batch(items: Sequence[Any]) -> list[str]:
    """Sleep for the execution time of a batch of this size on an instance of this size.

    Raises:
        LookupError: If the model does not know this time.
    """
    cpu, gpu = (float(os.environ.get(name) or unset) for name, unset in _SIZE.items())
    exec_s = _model().predict(len(items), cpu, gpu)
    if exec_s is None:
        message = f"a batch of {len(items)} on {cpu:g} cores and {gpu:g} % of a GPU is not known"
        raise LookupError(message)
    time.sleep(exec_s)  # noqa: TID251  it stands for work
    return ["done"] * len(items)


@cache
def _model() -> LatencyModel:
    model = pickle.loads(Path(__file__).with_name(FILE).read_bytes())  # noqa: S301  our own
    variant = os.environ.get("model_variant", "")  # noqa: SIM112  as the scaler says it
    return model_of(model, variant)
