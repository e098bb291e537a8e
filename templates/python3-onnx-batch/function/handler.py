"""Around the model in model.onnx: no code is needed, this file may even be deleted.

Without code, callers send the model's inputs as Open Inference Protocol v2 JSON::

    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}]}

To take other bodies or to answer in other words, define either of these, or both. Each is given
one item; batching is not your concern. An item that cannot be used: ``raise ItemError("why")``,
from watchdog_plugin; its caller is answered 400 and its neighbours are answered as usual.

    def preprocess(item):
        # item.body, .json(), .headers, .content_type -> an array, or a dict {input name: array},
        # without the batch axis
        return np.asarray(item.json()["features"], np.float32)

    def postprocess(outputs):
        # {output name: array} without the batch axis -> bytes, str or anything with a JSON form
        return {"class": int(outputs["y"].argmax())}

Put your model here as model.onnx; its first axis must be dynamic. To try things out without one,
copy example.onnx to model.onnx: four numbers in, probabilities of three classes out, with random
weights. It is not served under its own name.
"""
