"""Finding a function template and reading its template.yml.

Looked for, in this order: ``template/LANG`` in the stack file's folder, which is where faas-cli
keeps what a user pulled or wrote; then the templates that come with Carpool, which a wheel carries
as package data (``faas_stack/_templates``) and a source tree or editable installation has beside
this package (``templates``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.files import read_text
from carpool.validation.problems import Problems, nearest
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
        name: the folder's name, which is what ``lang`` refers to.
        folder: its files.
        fprocess: the command of a function's process when the stack file gives none.
        handler_folder: where in the build context the author's files go.
        build_options: names a function may list under ``build_options``.
        environment: variables of its functions, as its Dockerfile gives them to images; the stack
            file's own go before.
    """

    name: str
    folder: Path
    fprocess: str = ""
    handler_folder: str = "function"
    build_options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def folders(stack_folder: Path) -> list[Path]:
    """The folders templates are looked for in, most specific first."""
    return [stack_folder / "template", *_SHIPPED]


def find(lang: str, stack_folder: Path) -> Template:
    """The template ``lang``.

    Raises:
        ConfigError: there is none of that name, or its template.yml cannot be used.
    """
    problems = Problems()
    for folder in folders(stack_folder):
        if (folder / lang / "template.yml").is_file():
            template = _read(folder / lang, problems)
            problems.raise_if_any()
            return template
    known = sorted(
        {found.parent.name for f in folders(stack_folder) for found in f.glob("*/template.yml")}
    )
    expected = f"a template: {', '.join(known)}" if known else "a folder template/LANG"
    hint = nearest(lang, known) or f"none at {stack_folder / 'template' / lang}"
    problems.add("lang", lang, expected, hint)
    problems.raise_if_any()
    raise AssertionError


def _read(folder: Path, problems: Problems) -> Template:
    """Unknown keys are passed over: templates come from many hands and faas-cli ignores them."""
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
