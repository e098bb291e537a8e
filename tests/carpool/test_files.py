"""Atomic replacement of files."""

from __future__ import annotations

import stat
import threading
from typing import TYPE_CHECKING

import pytest

from carpool.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Symbolic links at the path or beside it are not followed when a file is replaced."""
    folder, foreign = tmp_path / "folder", tmp_path / "foreign"
    folder.mkdir()
    foreign.write_text("as it was")
    for name in ("secret", ".secret.new", ".new-"):
        (folder / name).symlink_to(foreign)
    replace_file(folder / "secret", b"password")
    assert "as it was" == foreign.read_text()
    assert not (folder / "secret").is_symlink()
    assert b"password" == (folder / "secret").read_bytes()
    assert 0o600 == stat.S_IMODE((folder / "secret").stat().st_mode)


def test_concurrent_writers_do_not_conflict(tmp_path: Path) -> None:
    """Concurrent writers all succeed, one content is complete, and no other file is left."""
    texts = [bytes([65 + number]) * 100_000 for number in range(8)]
    start = threading.Barrier(len(texts))
    failed: list[OSError] = []

    def write(text: bytes) -> None:
        start.wait()
        try:
            for _ in range(20):
                replace_file(tmp_path / "file", text)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failed
    assert (tmp_path / "file").read_bytes() in texts
    assert ["file"] == [path.name for path in tmp_path.iterdir()]


def test_the_longest_name(tmp_path: Path) -> None:
    """A file with the longest name that the file system permits can be replaced."""
    replace_file(tmp_path / ("n" * 255), b"x")
    assert b"x" == (tmp_path / ("n" * 255)).read_bytes()


def test_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    """A failed write changes nothing and leaves no other file."""
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "file", b"x")
    assert ["file"] == [path.name for path in tmp_path.iterdir()]
