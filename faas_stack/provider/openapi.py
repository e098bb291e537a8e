"""The provider's API as an OpenAPI document: its routes, and a path for each function."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import carpool
from carpool import durations
from faas_stack.provider.scaler_access import is_instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from faas_stack.provider.function import Function

__all__ = ["PATH", "document"]

PATH = "/openapi.json"
_WITH_BODY = frozenset(("POST", "PUT", "DELETE"))
_PARAMETER = re.compile(r"\{(\w+)\}")
_LOGIN = "credentials"
_JSON: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
_ANY: dict[str, Any] = {"*/*": {"schema": {}}}
_ERROR = {
    "description": "an error, which says what was expected",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}}
        }
    },
}


def document(
    routes: Mapping[str, Iterable[str]],
    functions: Iterable[Function],
    default_namespace: str,
    *,
    login: bool,
) -> dict[str, Any]:
    """Return an OpenAPI 3.1 document.

    Args:
        routes: Methods of each of the provider's own paths.
        functions: Deployed functions; instances that only a front calls are left out.
        default_namespace: Namespace of functions that are called by their name alone.
        login: Whether routes other than function calls require credentials.
    """
    paths = {path: _route(path, methods, login=login) for path, methods in routes.items()}
    called = [each for each in functions if not is_instance(each.deployment)]
    paths |= {f"/function/{_name(each, default_namespace)}": _call(each) for each in called}
    schemes = {_LOGIN: {"type": "http", "scheme": "basic"}} if login else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Carpool's OpenFaaS provider", "version": carpool.__version__},
        "paths": paths,
        "components": {"securitySchemes": schemes},
    }


def _route(path: str, methods: Iterable[str], *, login: bool) -> dict[str, Any]:
    names = _PARAMETER.findall(path)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    open_to_all = path == "/healthz" or not login
    security: dict[str, Any] = {} if open_to_all else {"security": [{_LOGIN: []}]}
    made: dict[str, Any] = {"parameters": parameters} if parameters else {}
    for method in methods:
        body = {"requestBody": {"content": _JSON}} if method in _WITH_BODY else {}
        answers = {"2XX": {"description": "done"}, "default": _ERROR}
        made[method.lower()] = {"tags": ["provider"], "responses": answers, **body, **security}
    return made


def _name(function: Function, default_namespace: str) -> str:
    """Return the name by which a function is called."""
    deployment = function.deployment
    outside = deployment.namespace != default_namespace
    return f"{deployment.service}.{deployment.namespace}" if outside else deployment.service


def _call(function: Function) -> dict[str, Any]:
    """Describe the calls of a function: its objectives and batching, as its bodies are unknown."""
    settings = function.deployment.settings
    objectives = {"*": settings.slo_s, **{app.name: app.slo_s for app in settings.apps}}
    texts = {name: durations.format(s) for name, s in objectives.items() if s is not None}
    within = ", ".join(
        f"{slo} for the application {name}" if name != "*" else slo for name, slo in texts.items()
    )
    about = f"{settings.percentile * 100:g} % are to be answered within {within}" if texts else ""
    carpool_settings = {"objectives": texts, "percentile": settings.percentile}
    return {
        "post": {
            "tags": ["functions"],
            "summary": f"Call {function.deployment.service}",
            "description": about or "no objective",
            "parameters": [_header("X-Timeout", "the longest that the caller waits, such as 2s")],
            "requestBody": {"content": _ANY},
            "responses": {
                "200": {"description": "the function's answer", "content": _ANY},
                "default": _ERROR,
            },
            "x-carpool": {**carpool_settings, "batch_max": settings.batch_max},
        }
    }


def _header(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}
