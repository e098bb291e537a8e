"""Triton's and TensorFlow Serving's names for parameters of `fixed` and for settings elsewhere.

Names are those of Triton's model configuration (``max_batch_size`` and ``dynamic_batching``) and
of TensorFlow Serving's batching parameters file. A knob that is left out has the default of
`fixed`, not the other server's: those two do not wait unless configured to.
"""

from __future__ import annotations

from carpool.plugins import Knob

__all__ = ["KNOBS"]

TRITON = "Triton"
TF_SERVING = "TensorFlow Serving"

_MICROS_PER_S = 1_000_000
_MICROS = "whole microseconds, at least 0"
_SIZE = "a whole number of at least 1"


def _seconds(micros: object) -> float:
    return _whole(micros, at_least=0) / _MICROS_PER_S


def _size(value: object) -> int:
    return _whole(value, at_least=1)


def _sizes(value: object) -> int | list[int]:
    if not isinstance(value, list):
        return _size(value)
    first, *others = map(_size, value)
    return [first, *others] if others else first


def _whole(value: object, *, at_least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ValueError(value)
    return value


_PRIORITIES = (
    "requests with the header X-Carpool-Class: batch are background requests, and get "
    "com.carpool.background.share of the items sent"
)

KNOBS = (
    Knob(
        "max_batch_size",
        f"{TRITON}, {TF_SERVING}",
        "size",
        _size,
        _SIZE,
        "com.carpool.batch.max must be at least as large",
    ),
    Knob(
        "preferred_batch_size",
        TRITON,
        "size",
        _sizes,
        f"{_SIZE}, or a list of them",
        "of several, the largest that can be filled leaves at once; when the wait of the oldest "
        "is over, as many as wait leave, up to the largest",
    ),
    Knob(
        "max_queue_delay_microseconds",
        TRITON,
        "wait_s",
        _seconds,
        _MICROS,
        f"{_MICROS_PER_S} to the second",
    ),
    Knob(
        "batch_timeout_micros",
        TF_SERVING,
        "wait_s",
        _seconds,
        _MICROS,
        f"{_MICROS_PER_S} to the second",
    ),
    Knob(
        "max_enqueued_batches",
        TF_SERVING,
        note="set com.carpool.queue.max, in requests: the batches times their size",
    ),
    Knob(
        "num_batch_threads",
        TF_SERVING,
        note="an instance runs one batch at a time: set com.carpool.scale.min to as many instances",
    ),
    Knob(
        "instance_group",
        TRITON,
        note="set com.carpool.scale.min to as many instances",
    ),
    Knob(
        "default_queue_policy",
        TRITON,
        note="set com.carpool.queue.max for its max_queue_size, and com.carpool.slo or the "
        "request's X-Timeout for its timeouts",
    ),
    Knob("priority_levels", TRITON, note=_PRIORITIES),
    Knob("default_priority_level", TRITON, note=_PRIORITIES),
    Knob("priority_queue_policy", TRITON, note=_PRIORITIES),
    Knob(
        "preserve_ordering",
        TRITON,
        note="remove it: requests leave first in, first out, and each is answered on its own",
    ),
    Knob(
        "pad_variable_length_inputs",
        TF_SERVING,
        note="declare the inputs' ragged axes in the function's handler.py (docs/handler.md)",
    ),
    Knob(
        "allowed_batch_sizes",
        TF_SERVING,
        note="remove it: batches are not padded to a size; to leave at once with one of several "
        "sizes, give size a list of them",
    ),
    Knob(
        "thread_pool_name",
        TF_SERVING,
        note="remove it: every function has its own instances",
    ),
)
