"""docs/architecture.md names code that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PARTS = ["carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"]
OTHERS = ["docker", "docs", "templates"]
LINKS = sorted(set(re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)", PAGE)))
PATHS = sorted(set(re.findall(rf"\b(?:{'|'.join(PARTS + OTHERS)})/[\w/.]*\b/?", PAGE)))


def _defined(tree: ast.AST, name: str) -> bool:
    """Return whether ``Class.method``, or a class or function, is defined in ``tree``."""
    first, _, rest = name.partition(".")
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, kinds) and node.name == first:
            return not rest or _defined(node, rest)
    return False


def test_linked_file_defines_named_class_or_function() -> None:
    """A reader who follows a link finds the class or function in that file."""
    trees = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for _, path in LINKS}
    lost = [
        (name, path)
        for name, path in LINKS
        if not _defined(trees[path], name) and Path(path).stem != name
    ]
    assert [] == lost


def test_every_path_exists() -> None:
    """Files and folders named in text and drawings exist; a folder is written with a slash."""
    there = {True: Path.is_dir, False: Path.is_file}
    assert [] == [path for path in PATHS if not there[path.endswith("/")](ROOT / path)]


def test_the_page_names_every_part() -> None:
    """The table of parts is complete, and the page has links to check."""
    folders = re.findall(r"^\| `(\w+)/`", PAGE, re.MULTILINE)
    assert set(PARTS) <= set(folders)
    assert {path.partition("/")[0] for _, path in LINKS} == set(PARTS)
