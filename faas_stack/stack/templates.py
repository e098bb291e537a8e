"""Search for a function template, and reading of its template.yml.

Templates are searched in this order: ``template/LANG`` in the stack file's folder, where faas-cli
keeps what a user pulled or wrote; then the templates that come with Carpool, which are package data
in a wheel (``faas_stack/_templates``) and beside this package in a source tree or editable
installation (``templates``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems, nearest
from carpool.validation.text_file import read_text
from carpool.validation.yaml_reader import YamlReader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DOCKERFILE", "Template", "find", "folders"]

DOCKERFILE = "dockerfile"
_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = (_PACKAGE / "_templates", _PACKAGE.parent / "templates")


@dataclass(frozen=True, slots=True)
class Template:
    """A language template.

    Attributes:
        name: Name of the folder, to which ``lang`` refers.
        folder: Folder with its files.
        fprocess: Command of a function's process if the stack file gives none.
        handler_folder: Folder of the build context for the author's files.
        build_options: Names that a function may list under ``build_options``.
        environment: Variables of its functions, as its Dockerfile gives them to images; the stack
            file's own take precedence.
    """

    name: str
    folder: Path
    fprocess: str = ""
    handler_folder: str = "function"
    build_options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def folders(stack_folder: Path) -> list[Path]:
    """Return the folders in which templates are searched, most specific first."""
    return [stack_folder / "template", *_SHIPPED]


def find(lang: str, stack_folder: Path) -> Template:
    """Return the template ``lang``.

    Raises:
        ConfigError: There is no template with that name, or its template.yml cannot be used.
    """
    problems = Problems()
    for folder in folders(stack_folder):
        if (folder / lang / "template.yml").is_file():
            template = _read(folder / lang, problems)
            problems.raise_if_any()
            return template
    known = sorted(
        {
            template_file.parent.name
            for f in folders(stack_folder)
            for template_file in f.glob("*/template.yml")
        }
    )
    expected = f"a template: {', '.join(known)}" if known else "a folder template/LANG"
    hint = nearest(lang, known) or f"none at {stack_folder / 'template' / lang}"
    problems.add("lang", lang, expected, hint)
    problems.raise_if_any()
    raise AssertionError


def _read(folder: Path, problems: Problems) -> Template:
    """Read a template; ignore unknown keys, as faas-cli does and templates have many sources."""
    path = folder / "template.yml"
    reader = YamlReader(str(path), problems)
    text = read_text(path, problems)
    root = reader.root(text) if text is not None else None
    entries = reader.mapping(root, "") if root is not None else {}
    values = {
        key: reader.text(entries[key], key)
        for key in ("fprocess", "handler_folder")
        if key in entries
    }
    options = reader.items(entries["build_options"], "x") if "build_options" in entries else []
    names = [reader.mapping(node, f"build_options[{i}]").get("name") for i, node in options]
    own = entries.get("environment")
    return Template(
        name=folder.name,
        folder=folder,
        fprocess=values.get("fprocess", ""),
        handler_folder=values.get("handler_folder") or "function",
        build_options=tuple(reader.text(node, "name") for node in names if node is not None),
        environment=reader.text_map(own, "environment") if own is not None else {},
    )
