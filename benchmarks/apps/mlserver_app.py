"""The model as a custom MLServer runtime."""

from __future__ import annotations

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from model import Model


class Bench(MLModel):
    """Model that speaks the Open Inference Protocol; MLServer concatenates the batch."""

    async def load(self) -> bool:
        """Load the model."""
        self._model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Return the predictions for a batch."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("y", self._model.run(rows.astype("float32", copy=False)))
        return InferenceResponse(model_name=self.name, outputs=[output])
