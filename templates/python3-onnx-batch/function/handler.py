"""Optional code around model.onnx; if you need none, leave this file as it is or delete it.

Without code, callers send the model's inputs as JSON, one row for each item, or with the
names, datatypes and shapes of the Open Inference Protocol v2::

    {"instances": [[5.1, 3.5, 1.4, 0.2]]}
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}]}

To accept another request format or return another response format, define one or both of these
functions. Each gets one item; Carpool does the batching. To reject an item, raise
``ItemError("why")`` from watchdog_plugin: its caller gets status 400, and the other items of the
batch are answered.

    def preprocess(item):
        # item.body, .json(), .headers, .content_type -> an array, or a dict {input name: array},
        # without the batch axis
        return np.asarray(item.json()["features"], np.float32)

    def postprocess(outputs):
        # {output name: array} without the batch axis -> bytes, str or a JSON value
        return {"class": int(outputs["y"].argmax())}

The model is model.onnx in this folder. The first axis of its inputs and outputs must be the batch,
and dynamic; if the batch is another axis, declare it: ``batch_axis = {"state": 1}``. To try the
function without a model of your own, copy example.onnx to model.onnx: it maps four numbers to the
probabilities of three classes, with random weights.
"""
