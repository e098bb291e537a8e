"""Files that are replaced as a whole."""

from __future__ import annotations

import stat
import threading
from typing import TYPE_CHECKING

import pytest

from carpool.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path


def test_no_link_is_followed(tmp_path: Path) -> None:
    """What others have put beside a file, or in its place, gets nothing of what is written."""
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


def test_writers_do_not_meet(tmp_path: Path) -> None:
    """Several at once: each succeeds, one is the last, and nothing else is left."""
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
    """What the file system takes as a name can be written."""
    replace_file(tmp_path / ("n" * 255), b"x")
    assert b"x" == (tmp_path / ("n" * 255)).read_bytes()


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    """Nor is anything left beside it."""
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "file", b"x")
    assert ["file"] == [path.name for path in tmp_path.iterdir()]
