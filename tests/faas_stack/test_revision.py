"""Tests of the commit that ``faas-cli version`` shows."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from faas_stack import revision

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    revision.revision.cache_clear()
    yield
    revision.revision.cache_clear()


def test_image_shows_commit_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image shows the commit it was built from, whatever checkout surrounds it."""
    monkeypatch.setattr(revision, "FILE", tmp_path / "REVISION")
    (tmp_path / "REVISION").write_text("abc\n")
    assert "abc" == revision.revision()


def test_checkout_shows_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout shows its commit, or "unknown" without a commit or without git."""
    monkeypatch.setattr(revision, "_ROOT", tmp_path)
    assert "unknown" == revision.revision()
    git = ("git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run((*git, "init", "--quiet"), check=True)
    revision.revision.cache_clear()
    assert "unknown" == revision.revision()  # nothing is committed
    subprocess.run((*git, "commit", "--quiet", "--allow-empty", "-m", "first"), check=True)
    asked = subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True)
    revision.revision.cache_clear()
    assert asked.stdout.strip() == revision.revision()
    monkeypatch.setenv("PATH", str(tmp_path))
    revision.revision.cache_clear()
    assert "unknown" == revision.revision()
