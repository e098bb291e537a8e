"""The model behind KServe's Python server."""

from __future__ import annotations

from uuid import uuid4

import kserve
import numpy as np
from kserve import InferOutput, InferRequest, InferResponse
from model import PORT, Model


class Bench(kserve.Model):  # type: ignore[misc]
    """Model that speaks the Open Inference Protocol."""

    def __init__(self) -> None:
        super().__init__("bench")
        self._model = Model()
        self.ready = True

    def predict(self, payload: InferRequest, headers: object = None) -> InferResponse:
        """Return a prediction for each row."""
        del headers
        rows = payload.inputs[0].as_numpy().astype(np.float32, copy=False)
        outputs = self._model.run(rows)
        tensor = InferOutput("y", list(outputs.shape), "FP32", outputs.ravel().tolist())
        return InferResponse(payload.id or str(uuid4()), self.name, [tensor])


if __name__ == "__main__":
    kserve.ModelServer(http_port=PORT, enable_grpc=False, workers=1).start([Bench()])
