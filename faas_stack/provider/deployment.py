"""JSON documents of the OpenFaaS REST API, for requests and responses.

Types are exact, because the gateway and faas-cli parse with Go's strict types: integers are never
floats, map values are strings, times carry an offset. Unknown fields are ignored, as in every
OpenFaaS provider; values of the wrong type are all reported together. This module does not know how
functions run.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from carpool import function_name
from carpool.errors import BadRequest
from carpool.settings import CANARY_LABEL, FunctionSettings
from carpool.validation import rules
from carpool.validation.problems import Problems
from faas_stack import function_settings
from sidecar.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DEFAULT_NAMESPACE", "Deployment", "read_object", "split_name", "take", "text_map"]

DEFAULT_NAMESPACE = "openfaas-fn"
_NAME = re.compile(function_name.PATTERN)
_MOST_PATH = 200  # characters; each value has one, and a megabyte may begin half a million of them
_NAME_EXPECTED = "lower-case letters, digits and inner dashes, at most 63"

T = TypeVar("T", str, bool, int)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployed function, with the fields of OpenFaaS's FunctionDeployment.

    Attributes:
        settings: Settings from its ``com.carpool.`` labels and annotations.
        options: Options of its sidecar from its environment.
        uid: Identifier of this deployment; an identical update has another one.
    """

    service: str
    image: str
    namespace: str = DEFAULT_NAMESPACE
    env_process: str = ""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] | None = None
    requests: Mapping[str, str] | None = None
    read_only_root: bool = False
    settings: FunctionSettings = field(default_factory=FunctionSettings)
    options: Options = field(default_factory=Options)
    uid: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @classmethod
    def from_json(cls, body: bytes, default_namespace: str = DEFAULT_NAMESPACE) -> Deployment:
        """Read a FunctionDeployment.

        Args:
            body: JSON.
            default_namespace: Namespace if the document names none.

        Raises:
            BadRequest: If it is not a JSON object.
            ConfigError: With all fields that are missing, of the wrong type or malformed.
        """
        problems = Problems()
        document = read_object(body)
        labels = text_map(document, "labels", problems) or {}
        annotations = text_map(document, "annotations", problems) or {}
        env_vars = text_map(document, "envVars", problems) or {}
        deployment = cls(
            service=_name(document, "service", problems),
            image=take(document, "image", "", problems),
            namespace=_namespace(document, default_namespace, problems),
            env_process=take(document, "envProcess", "", problems),
            env_vars=env_vars,
            constraints=_texts(document, "constraints", problems),
            secrets=tuple(dict.fromkeys(_texts(document, "secrets", problems))),
            labels=labels,
            annotations=annotations,
            limits=text_map(document, "limits", problems),
            requests=text_map(document, "requests", problems),
            read_only_root=take(document, "readOnlyRootFilesystem", False, problems),  # noqa: FBT003
            settings=problems.attempt(lambda: function_settings.read(labels, annotations, env_vars))
            or FunctionSettings(),
            options=_options(env_vars, problems),
        )
        if deployment.env_process.isspace():
            expected = "the handler's command; or remove it: the image has one"
            problems.add("envProcess", deployment.env_process, expected)
        for name in env_vars:
            if not name or "=" in name:
                expected = "a name that is not empty and has no '='"
                problems.add("envVars", name, expected)
        if percent := deployment.settings.canary.get(deployment.service):
            expected = "other functions: this one answers the remaining calls itself"
            problems.add(CANARY_LABEL, f"{deployment.service}={percent:g}%", expected)
        _check_texts(document, problems)
        if not deployment.image and not document.get("image"):
            problems.add("image", "", "an image name", "it is missing")
        problems.raise_if_any()
        return deployment

    def to_json(self) -> dict[str, Any]:
        """Return the fields shared by FunctionStatus and FunctionDeployment, without empty ones."""
        optional = {
            "envProcess": self.env_process,
            "envVars": dict(self.env_vars),
            "constraints": list(self.constraints),
            "secrets": list(self.secrets),
            "limits": dict(self.limits or {}),
            "requests": dict(self.requests or {}),
            "readOnlyRootFilesystem": self.read_only_root,
        }
        return {
            "image": self.image,
            "namespace": self.namespace,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            **{key: value for key, value in optional.items() if value},
        }

    def without_canary(self) -> Deployment:
        """Return the deployment of its replicas, which do not depend on its canaries."""
        if not self.settings.canary:
            return self
        labels, annotations = (
            {name: text for name, text in texts.items() if name != CANARY_LABEL}
            for texts in (self.labels, self.annotations)
        )
        settings = replace(self.settings, canary={})
        return replace(self, labels=labels, annotations=annotations, settings=settings)

    def as_update_of(self, other: Deployment) -> Deployment:
        """Return the deployment, with the ``uid`` of ``other`` if its replicas may stay.

        They may stay if only the canaries differ. An identical deployment replaces them, as the
        image of that name may be a new one.
        """
        divided = self.settings.canary != other.settings.canary
        stays = divided and self.without_canary() == other.without_canary()
        return replace(self, uid=other.uid) if stays else self


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a request's body.

    Raises:
        BadRequest: If it is not one.
    """
    try:
        document = rules.loads(body)
    except ValueError as error:
        message = f"the body is not JSON: {error}"
        raise BadRequest(message) from error
    if not isinstance(document, dict):
        message = f"the body must be a JSON object, not {type(document).__name__}"
        raise BadRequest(message)
    for where, text in _texts_within(document):
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            message = f"{where} = {text!r}: expected text without unpaired surrogates"
            raise BadRequest(message.encode("ascii", "backslashreplace").decode())
    return document


def _check_texts(document: Mapping[str, Any], problems: Problems) -> None:
    """Report texts with a zero byte, which cannot be passed to a process."""
    for where, text in _texts_within(document):
        if "\0" in text:
            problems.add(where, text, "text without zero bytes")


def _texts_within(document: object) -> Iterator[tuple[str, str]]:
    """Yield the path and value of all text in a document, including field names."""
    left: list[tuple[str, object]] = [("", document)]
    while left:
        where, value = left.pop()
        where = where[:_MOST_PATH]
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, dict):
            for name, each in value.items():
                yield where or "a field", name
                left.append((f"{where}.{name}" if where else name, each))
        elif isinstance(value, list):
            left += [(f"{where}[{index}]", each) for index, each in enumerate(value)]


def take(document: Mapping[str, Any], key: str, default: T, problems: Problems) -> T:
    """Return the value of ``key``, which must have the type of ``default``.

    Return ``default`` if the value is null or missing.
    """
    value = document.get(key)
    if value is None:
        return default
    if type(value) is not type(default):
        names = {str: "text", bool: "true or false", int: "a whole number"}
        problems.add(key, value, names[type(default)])
        return default
    return value


def split_name(name: str, namespace: str, default: str) -> tuple[str, str]:
    """Split ``NAME`` or ``NAME.NAMESPACE`` at the last dot into function name and namespace."""
    function, dot, suffix = name.rpartition(".")
    if dot:
        return function, suffix
    return name, namespace or default


def _name(document: Mapping[str, Any], key: str, problems: Problems) -> str:
    value = take(document, key, "", problems)
    if not _NAME.fullmatch(value):
        problems.add(key, value, f"a name of {_NAME_EXPECTED}")
    return value


def _namespace(document: Mapping[str, Any], default: str, problems: Problems) -> str:
    if not document.get("namespace"):
        return default
    return _name(document, "namespace", problems)


def _texts(document: Mapping[str, Any], key: str, problems: Problems) -> tuple[str, ...]:
    value = document.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        problems.add(key, value, "a list of text")
        return ()
    return tuple(value)


def text_map(document: Mapping[str, Any], key: str, problems: Problems) -> dict[str, str] | None:
    """Return the object of text values under ``key``. None if there is none."""
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.add(key, value, "an object of text values")
        return None
    for name, text in value.items():
        if not isinstance(text, str):
            problems.add(f"{key}.{name}", text, "text", "write it in quotes")
    return {name: str(text) for name, text in value.items()}


def _options(env_vars: Mapping[str, str], problems: Problems) -> Options:
    """Return the options as the sidecar will read them, except for a folder that is only there."""
    names = [name for name in env_vars if name.startswith("sidecar_") or name == "exec_timeout"]
    env = {name: env_vars[name] for name in names if name != "sidecar_plan_folder"}
    return problems.attempt(lambda: Options.from_env({"OPENFAAS_NAME": "-", **env})) or Options()
