"""Tests of which files are reported as changed, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.stack.changed_files import FileChanges, look

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = (1, 1, 1), (2, 1, 1)


def test_change_is_reported_once_when_file_is_stable() -> None:
    """A change is reported once, and only when the file has stopped changing."""
    changes = FileChanges({"a": ONE, "b": ONE})
    assert [] == changes.take({"a": ONE, "b": ONE})
    assert [] == changes.take({"a": TWO, "b": ONE})
    assert [] == changes.take({"a": (3, 1, 1), "c": ONE})
    assert ["a", "b", "c"] == changes.take({"a": (3, 1, 1), "c": ONE})
    assert [] == changes.take({"a": (3, 1, 1), "c": ONE})


def test_file_moved_away_and_back_is_unchanged() -> None:
    """A file that is moved away and back, as by an editor, has not changed."""
    changes = FileChanges({"a": ONE})
    assert [] == changes.take({})
    assert [] == changes.take({"a": ONE})
    assert [] == changes.take({"a": ONE})


def test_editor_and_cache_files_are_ignored(tmp_path: Path) -> None:
    """Files that vim, emacs, PyCharm, gedit and Python write beside a file are ignored."""
    kept = ["handler.py", "data/model.onnx", ".env", "tmp", "data/build"]
    left = [
        *("4913", "handler.py~", ".#handler.py", "#handler.py#", ".handler.py.swp"),
        *("handler.py___jb_tmp___", ".goutputstream-X", "x.tmp", "__pycache__/handler.pyc"),
        *(".git/index", "build/tell"),
    ]
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    seen = look([tmp_path, tmp_path / "nowhere"], skipped=("build",))
    assert {str(tmp_path / name) for name in kept} == set(seen)


def test_links_are_followed_except_circular_ones(tmp_path: Path) -> None:
    """Links are followed, except circular ones, and each file is reported once."""
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    (root / "a").mkdir(parents=True)
    elsewhere.mkdir()
    for file in (elsewhere / "model", root / "a" / "x", root / "z"):
        file.write_text("x")
    (root / "a" / "here").symlink_to(".")
    (root / "a" / "up").symlink_to(root)
    (root / "b").symlink_to("b")
    (root / "c").symlink_to("d")
    (root / "d").symlink_to("c")
    (root / "link").symlink_to(elsewhere)
    names = ("a/x", "link/model", "z")
    assert {str(root / name) for name in names} == set(look([root]))


def test_invalid_paths_have_no_files(tmp_path: Path) -> None:
    """Names that are too long or contain a NUL have no files."""
    assert {} == look([tmp_path / ("x" * 300), tmp_path / "a\0b"])


def test_replacement_of_same_size_is_a_change(tmp_path: Path) -> None:
    """A file replaced by one of the same size has changed, also behind a link."""
    (tmp_path / "model").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    before = look([tmp_path / "link"])
    (tmp_path / "new").write_text("b")
    (tmp_path / "new").replace(tmp_path / "model")
    assert before.keys() == look([tmp_path / "link"]).keys()
    assert before != look([tmp_path / "link"])
