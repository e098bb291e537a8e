"""How the threads of an ONNX Runtime session wait for work.

Between two operators, an idle thread polls for a few microseconds before it sleeps. Most operators
of a model follow each other sooner than that, and waking a sleeping thread takes tens of
microseconds on a virtual machine. The runtime's own default, a millisecond and more, takes cores
from other instances. Releases before 1.26 poll either for so long or not at all: there, threads
sleep at once.
"""

from __future__ import annotations

from typing import Any

import onnxruntime as ort

__all__ = ["set_threads"]

_POLLING_US = 5
_LIMITS_POLLING = (1, 26)


def set_threads(options: Any, threads: int) -> None:  # noqa: ANN401  onnxruntime ships no types
    """Set how many threads one run uses, and how they wait.

    Args:
        options: The session's options.
        threads: Number of cores one run may use.
    """
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    entries = {"session.inter_op.allow_spinning": "0"}
    if _release() < _LIMITS_POLLING:
        entries["session.intra_op.allow_spinning"] = "0"
    else:
        entries["session.intra_op.spin_duration_us"] = str(_POLLING_US)
    for key, value in entries.items():
        options.add_session_config_entry(key, value)


def _release() -> tuple[int, ...]:
    return tuple(map(int, ort.__version__.split(".")[:2]))
