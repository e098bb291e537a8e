"""The prewarm policy with a fixed keep-alive."""

from __future__ import annotations

from scaler.prewarm.contract import Windows
from tests.scaler.prewarm.samples import made, told


def test_the_windows_never_change() -> None:
    """The keep-alive is ten minutes by default, and None keeps an instance without limit."""
    assert Windows(0.0, 600.0) == told(made("fixed"), [1.0, 1e6]).windows(1e6)
    assert Windows(0.0, None) == made("fixed", keep_alive_s=None).windows(0.0)
