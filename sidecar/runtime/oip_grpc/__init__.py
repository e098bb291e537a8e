"""The Open Inference Protocol over gRPC: calls become exchanges, as requests over HTTP are.

``messages`` and ``tensor_values`` are the protocol's messages and values; ``requests`` and
``answers`` convert messages to its HTTP form and back, purely. ``rpc`` passes one call on to the
application, and ``service`` serves. Nothing here decides on batches.
"""

import os

from carpool.errors import ConfigError, Problem

# Processes forked from this one do not use its gRPC. Without this, gRPC would run its own handlers
# and log at each fork. The function's process gets the environment without it.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

try:
    import grpc  # noqa: F401 - modules of this package need both
    from google.protobuf import message  # noqa: F401
except ImportError as error:
    problem = Problem("sidecar_grpc", "", "the extra grpc", 'pip install "carpool[grpc]"')
    raise ConfigError([problem]) from error
