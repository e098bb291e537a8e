"""docs/architecture.md names code that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PARTS = ["carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"]
OTHERS = ["docker", "docs", "templates"]
LINKS = sorted(set(re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)", PAGE)))
PATHS = sorted(set(re.findall(rf"\b(?:{'|'.join(PARTS + OTHERS)})/[\w/.]*\b/?", PAGE)))


def _defined(tree: ast.AST, name: str) -> bool:
    """Whether ``Class.method``, or a class or function, is defined in ``tree``."""
    first, _, rest = name.partition(".")
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, kinds) and node.name == first:
            return not rest or _defined(node, rest)
    return False


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_what_a_link_names_is_defined_where_it_leads(name: str, path: str) -> None:
    """A reader who follows the link finds the class or function in that file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert _defined(tree, name) or Path(path).stem == name


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    """Files and folders in text and drawings are there; a folder is written with a slash."""
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def test_the_page_names_every_part() -> None:
    """The table of parts is whole, and the links are found at all."""
    folders = re.findall(r"^\| `(\w+)/`", PAGE, re.MULTILINE)
    assert set(PARTS) <= set(folders)
    assert {path.partition("/")[0] for _, path in LINKS} == set(PARTS)
