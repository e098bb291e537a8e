"""The messages of the Open Inference Protocol's gRPC service.

Names and field numbers are those of KServe's specification,
https://github.com/kserve/open-inference-protocol (``open_inference_grpc.proto``), which Triton and
MLServer share. The messages are made on import, in a pool of their own: there is no generated code
that would have to fit the installed protobuf, and a process may also have a client's messages.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["MESSAGES", "SERVICE"]

_PACKAGE = "inference"
SERVICE = f"{_PACKAGE}.GRPCInferenceService"

# A field's place is its number. A star stands for any number of values. What the specification
# calls a map is the same on the wire as entries with a key and a value.
_FIELDS: dict[str, tuple[str, ...]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("bool live",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("bool ready",),
    "ModelReadyRequest": ("string name", "string version"),
    "ModelReadyResponse": ("bool ready",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("string name", "string version", "string* extensions"),
    "ModelMetadataRequest": ("string name", "string version"),
    "TensorMetadata": ("string name", "string datatype", "int64* shape"),
    "ModelMetadataResponse": (
        "string name",
        "string* versions",
        "string platform",
        "TensorMetadata* inputs",
        "TensorMetadata* outputs",
    ),
    "InferParameter": (
        "bool bool_param",
        "int64 int64_param",
        "string string_param",
        "double double_param",
        "uint64 uint64_param",
    ),
    "Parameter": ("string key", "InferParameter value"),
    "InferTensorContents": (
        "bool* bool_contents",
        "int32* int_contents",
        "int64* int64_contents",
        "uint32* uint_contents",
        "uint64* uint64_contents",
        "float* fp32_contents",
        "double* fp64_contents",
        "bytes* bytes_contents",
    ),
    "InferTensor": (
        "string name",
        "string datatype",
        "int64* shape",
        "Parameter* parameters",
        "InferTensorContents contents",
    ),
    "InferRequestedOutputTensor": ("string name", "Parameter* parameters"),
    "ModelInferRequest": (
        "string model_name",
        "string model_version",
        "string id",
        "Parameter* parameters",
        "InferTensor* inputs",
        "InferRequestedOutputTensor* outputs",
        "bytes* raw_input_contents",
    ),
    "ModelInferResponse": (
        "string model_name",
        "string model_version",
        "string id",
        "Parameter* parameters",
        "InferTensor* outputs",
        "bytes* raw_output_contents",
    ),
}
_ONE_OF = {"InferParameter": "parameter_choice"}  # of all its fields


def _described(name: str, fields: tuple[str, ...]) -> Any:  # noqa: ANN401 - protobuf is untyped
    message = descriptor_pb2.DescriptorProto(name=name)
    if name in _ONE_OF:
        message.oneof_decl.add(name=_ONE_OF[name])
    for number, text in enumerate(fields, start=1):
        field_type, field_name = text.split()
        field = message.field.add(name=field_name, number=number)
        field.label = field.LABEL_REPEATED if field_type.endswith("*") else field.LABEL_OPTIONAL
        field_type = field_type.removesuffix("*")
        if field_type in _FIELDS:
            field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{field_type}"
        else:
            field.type = getattr(field, f"TYPE_{field_type.upper()}")
        if name in _ONE_OF:
            field.oneof_index = 0
    return message


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="open_inference.proto", package=_PACKAGE, syntax="proto3"
    )
    file.message_type.extend([_described(name, fields) for name, fields in _FIELDS.items()])
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


MESSAGES = _made()
