"""Tests of how the threads of an ONNX Runtime session wait for work."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

import onnxruntime as ort
import pytest

from watchdog_plugin.onnx.threads import set_threads


@pytest.mark.parametrize(
    ("release", "key", "value"),
    [
        ("1.25.1", "session.intra_op.allow_spinning", "0"),
        ("1.26.0", "session.intra_op.spin_duration_us", "5"),
        ("1.40.0.dev20270101", "session.intra_op.spin_duration_us", "5"),
    ],
)
def test_idle_threads_poll_for_microseconds_where_the_runtime_can_limit_it(
    monkeypatch: pytest.MonkeyPatch, release: str, key: str, value: str
) -> None:
    """Older releases poll either for long or not at all."""
    monkeypatch.setattr(ort, "__version__", release)
    options = ort.SessionOptions()
    set_threads(options, 2)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry(key) == value
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"


def test_the_installed_runtime_knows_the_limit_on_polling() -> None:
    """Otherwise it would poll for a millisecond and more."""
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 26):
        pytest.skip(f"ONNX Runtime {ort.__version__} cannot limit polling")
    library = Path(ort.__file__).parent.glob("capi/onnxruntime_pybind11_state*")
    with next(library).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        assert data.find(b"session.intra_op.spin_duration_us") > 0
