"""One function of a stack file: its values, its environment files, its template.

The part of `faas_stack.stack.stack_file` that reads below ``functions``, just as strictly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.errors import ConfigError
from carpool.files import is_folder
from carpool.settings import rows
from carpool.validation.problems import Problems, nearest
from carpool.validation.text_file import read_text
from carpool.validation.yaml_reader import YamlReader
from faas_stack import function_settings
from faas_stack.stack import templates
from faas_stack.stack.substitute import substitute

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import yaml

    from faas_stack.stack.templates import Template

__all__ = ["FunctionReader", "Source", "StackFunction"]

_FUNCTION = (
    *("lang", "handler", "image", "fprocess", "environment", "environment_file", "secrets"),
    *("skip_build", "constraints", "labels", "annotations", "limits", "requests"),
    *("readonly_root_filesystem", "build_options", "build_args", "build_secrets", "platforms"),
    "namespace",
)
_RESOURCES = ("memory", "cpu")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


@dataclass(frozen=True, slots=True)
class Source:
    """Source from which functions are read.

    Attributes:
        folder: Folder to which paths are relative.
        env: Variables for substitutions.
    """

    folder: Path
    env: Mapping[str, str]
    reader: YamlReader
    problems: Problems


@dataclass(frozen=True, slots=True)
class StackFunction:
    """One function of a stack file, its environment files read and its template found.

    Attributes:
        template: None if the image is built from a Dockerfile, or elsewhere (``skip_build``).
        handler: Folder of the author; None with ``skip_build``.
        fprocess: Command in the stack file, else in the template, else empty.
    """

    name: str
    image: str
    lang: str
    handler: Path | None
    template: Template | None
    fprocess: str
    namespace: str
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    constraints: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    limits: Mapping[str, str]
    requests: Mapping[str, str]
    read_only_root: bool
    environment_files: tuple[str, ...] = ()


class FunctionReader:
    """Reads one function of a stack file."""

    def __init__(self, source: Source, name: str, node: yaml.Node) -> None:
        self._source = source
        self._reader = source.reader
        self._problems = source.problems
        self._function = name
        self._node = node
        self._where = f"functions.{name}"
        self._entries = source.reader.mapping(node, self._where, _FUNCTION)

    def read(self) -> StackFunction:
        """Return the whole function, even if parts of it have problems, which are reported."""
        skip_build = self._flag("skip_build")
        lang = self._text("lang")
        lang = templates.DOCKERFILE if lang.lower() == templates.DOCKERFILE else lang
        template = self._template(lang, skip_build=skip_build)
        labels, annotations = self._text_map("labels"), self._text_map("annotations")
        labelled = {row.env for row in rows() if row.label in labels or row.label in annotations}
        given = template.environment.items() if template else ()
        defaults = {name: value for name, value in given if name not in labelled}
        environment = {**defaults, **self._text_map("environment"), **self._environment_files()}
        self._check_settings(labels, annotations, environment)
        for key in ("build_args", "build_secrets"):
            self._text_map(key)
        self._text("platforms")
        self._check_build_options(template)
        return StackFunction(
            name=self._function,
            image=self._required("image", "an image name such as classify:latest"),
            lang=lang,
            handler=None if skip_build else self._handler(),
            template=template,
            fprocess=self._text("fprocess") or (template.fprocess if template else ""),
            namespace=self._text("namespace"),
            environment=environment,
            secrets=self._texts("secrets"),
            constraints=self._texts("constraints"),
            labels=labels,
            annotations=annotations,
            limits=self._resources("limits"),
            requests=self._resources("requests"),
            read_only_root=self._flag("readonly_root_filesystem"),
            environment_files=self._texts("environment_file"),
        )

    def _template(self, lang: str, *, skip_build: bool) -> Template | None:
        if skip_build or lang == templates.DOCKERFILE:
            return None
        if not self._required("lang", "a template's name such as python3-batch"):
            return None
        try:
            return templates.find(lang, self._source.folder)
        except ConfigError as error:
            prefix = self._reader.name(self._entries["lang"], f"{self._where}.")
            self._problems.extend(prefix, error)
            return None

    def _handler(self) -> Path | None:
        text = self._required("handler", "the folder with the function's code")
        folder = self._source.folder / text
        if not text:
            return None
        if not is_folder(folder):
            parent = folder.parent
            beside = [p.name for p in parent.iterdir() if is_folder(p)] if is_folder(parent) else []
            hint = nearest(folder.name, beside) or f"there is none at {folder}"
            self._reader.wrong(self._entries["handler"], self._key("handler"), "a folder", hint)
        return folder

    def _environment_files(self) -> dict[str, str]:
        values: dict[str, str] = {}
        for file in self._texts("environment_file"):
            text = read_text(self._source.folder / file, self._problems)
            if text is None:
                continue
            text = substitute(text, self._source.env, file, self._problems)
            reader = YamlReader(file, self._problems)
            root = reader.root(text)
            top = reader.mapping(root, "", ("environment",)) if root is not None else {}
            if "environment" in top:
                values.update(reader.text_map(top["environment"], "environment"))
        return values

    def _check_settings(
        self, labels: dict[str, str], annotations: dict[str, str], environment: dict[str, str]
    ) -> None:
        try:
            function_settings.read(labels, annotations, environment)
        except ConfigError as error:
            node = self._entries.get("labels") or self._entries.get("annotations", self._node)
            self._problems.extend(self._reader.name(node, f"{self._where}: "), error)

    def _check_build_options(self, template: Template | None) -> None:
        for option in self._texts("build_options"):
            if template and option not in template.build_options:
                name = self._reader.name(
                    self._entries["build_options"], f"{self._where}.build_options.{option}"
                )
                known = ", ".join(template.build_options) or "none"
                self._problems.add(name, option, f"a build option of {template.name}: {known}")

    def _resources(self, key: str) -> dict[str, str]:
        if key not in self._entries:
            return {}
        values = self._reader.text_map(self._entries[key], self._key(key), _RESOURCES)
        for name, value in values.items():
            if value and not _QUANTITY.fullmatch(value):
                where = self._reader.name(self._entries[key], f"{self._key(key)}.{name}")
                self._problems.add(where, value, "a quantity such as 500m, 2 or 128Mi")
        return values

    def _key(self, key: str) -> str:
        return f"{self._where}.{key}"

    def _required(self, key: str, expected: str) -> str:
        value = self._text(key)
        if not value:
            node = self._entries.get(key, self._node)
            self._problems.missing(self._reader.name(node, self._key(key)), expected)
        return value

    def _text(self, key: str) -> str:
        node = self._entries.get(key)
        return self._reader.text(node, self._key(key)) if node is not None else ""

    def _flag(self, key: str) -> bool:
        node = self._entries.get(key)
        return node is not None and self._reader.flag(node, self._key(key))

    def _texts(self, key: str) -> tuple[str, ...]:
        node = self._entries.get(key)
        return self._reader.texts(node, self._key(key)) if node is not None else ()

    def _text_map(self, key: str) -> dict[str, str]:
        node = self._entries.get(key)
        return self._reader.text_map(node, self._key(key)) if node is not None else {}
