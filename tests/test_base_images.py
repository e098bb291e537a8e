"""Tests of ``make base-images``, which replaces only images with another watchdog inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import base_images

if TYPE_CHECKING:
    from pathlib import Path

REAL, STAND_IN = "fwatchdog-of-the-path", "STAND-IN"


@pytest.mark.parametrize(
    ("inside", "now", "expected"),
    [
        ((STAND_IN, "stand-in"), (REAL, "real"), True),  # it is there by now
        ((REAL, "real"), (REAL, "real"), False),
        ((REAL, "older"), (REAL, "real"), True),
        ((STAND_IN, "older"), (STAND_IN, "stand-in"), True),
        ((STAND_IN, "stand-in"), (STAND_IN, "stand-in"), False),
        ((REAL, "real"), (STAND_IN, "stand-in"), False),  # better than what there is now
        ((STAND_IN, ""), (REAL, "real"), True),  # of before there were digests
        (("", ""), (REAL, "real"), False),  # pulled: OpenFaaS's own
    ],
)
def test_image_with_different_watchdog_is_replaced(
    inside: tuple[str, str], now: tuple[str, str], tmp_path: Path, *, expected: bool
) -> None:
    """An image is replaced by its content, and a real watchdog never by a stand-in."""
    files = {text: tmp_path / text for text in (inside[1], now[1]) if text}
    for text, file in files.items():
        file.write_text(text)
    digest = base_images.digest_of(files[inside[1]]) if inside[1] else ""
    labels = {"carpool.local": inside[0], "carpool.digest": digest} if inside[0] else {}
    assert expected is base_images.outdated(labels, now[0], files[now[1]])


def test_image_has_watchdog_of_path_or_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image has the watchdog of the PATH or else a stand-in; a gateway has no stand-in."""
    monkeypatch.setenv("PATH", str(tmp_path))
    watchdog, gateway = base_images.WATCHDOG, base_images.GATEWAY
    assert (STAND_IN, base_images.STAND_IN) == base_images.inside(watchdog)
    assert ("", None) == base_images.inside(gateway) == base_images.inside(base_images.PYTHON)
    for name in ("fwatchdog", "gateway"):
        (tmp_path / name).touch(0o755)
    assert (REAL, tmp_path / "fwatchdog") == base_images.inside(watchdog)
    assert ("gateway-of-the-path", tmp_path / "gateway") == base_images.inside(gateway)
