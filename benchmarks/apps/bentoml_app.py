"""The model as a BentoML service: one worker. Annotations must be real here: BentoML reads them."""

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
    """Rows in, rows out; BentoML concatenates the batch and takes it apart."""

    def __init__(self) -> None:
        self._model = Model()

    @bentoml.api(
        route="/predict", batchable=True, max_batch_size=BATCH_MAX, max_latency_ms=LATENCY_MS
    )
    def predict(self, instances: Rows) -> Array:
        """A batch."""
        return self._model.run(instances)
