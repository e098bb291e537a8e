"""Which files have changed, once they have come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.stack.changed_files import FileChanges, look

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = (1, 1, 1), (2, 1, 1)


def test_a_change_is_said_once_and_at_rest() -> None:
    """Not while a file is still being written."""
    changes = FileChanges({"a": ONE, "b": ONE})
    assert [] == changes.take({"a": ONE, "b": ONE})
    assert [] == changes.take({"a": TWO, "b": ONE})
    assert [] == changes.take({"a": (3, 1, 1), "c": ONE})
    assert ["a", "b", "c"] == changes.take({"a": (3, 1, 1), "c": ONE})
    assert [] == changes.take({"a": (3, 1, 1), "c": ONE})


def test_what_is_put_back_is_no_change() -> None:
    """As by an editor that moves the file away while it writes."""
    changes = FileChanges({"a": ONE})
    assert [] == changes.take({})
    assert [] == changes.take({"a": ONE})
    assert [] == changes.take({"a": ONE})


def test_files_of_editors_and_caches_are_left_out(tmp_path: Path) -> None:
    """What vim, emacs, PyCharm, gedit and Python write beside a file."""
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


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    """What lies beside one that leads into itself, or to a folder above, is seen, and once."""
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


def test_what_is_no_path_has_no_files(tmp_path: Path) -> None:
    """Names that are too long, and a NUL."""
    assert {} == look([tmp_path / ("x" * 300), tmp_path / "a\0b"])


def test_another_file_of_the_same_size_is_another(tmp_path: Path) -> None:
    """As one that an editor has moved into its place; links are followed."""
    (tmp_path / "model").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    before = look([tmp_path / "link"])
    (tmp_path / "new").write_text("b")
    (tmp_path / "new").replace(tmp_path / "model")
    assert before.keys() == look([tmp_path / "link"]).keys()
    assert before != look([tmp_path / "link"])
