"""The model as a BentoML service with one worker.

Annotations must not be strings here, because BentoML reads them.
"""

import os
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape
from model import BATCH_MAX, SHAPE, Array, Model

LATENCY_MS = int(float(os.environ["BENCH_WAIT_MS"]))
Rows = Annotated[np.ndarray, DType("float32"), Shape((-1, *SHAPE))]


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Bench:
    """Service that takes and returns rows; BentoML concatenates and splits the batch."""

    def __init__(self) -> None:
        self._model = Model()

    @bentoml.api(
        route="/predict", batchable=True, max_batch_size=BATCH_MAX, max_latency_ms=LATENCY_MS
    )
    def predict(self, instances: Rows) -> Array:
        """Return the predictions for a batch."""
        return self._model.run(instances)
