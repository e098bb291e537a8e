"""A namespace of functions in the OpenFaaS API."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from carpool.errors import ClientFault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FunctionNamespace", "Unsupported"]


class FunctionNamespace(NamedTuple):
    """A namespace of functions."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Unsupported(ClientFault):
    """Raised for operations on namespaces that this kind of provider does not support."""

    status: ClassVar[int] = 501
