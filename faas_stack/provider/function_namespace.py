"""A namespace of functions, as the OpenFaaS API has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from carpool.errors import ClientFault

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FunctionNamespace", "Unsupported"]


class FunctionNamespace(NamedTuple):
    """One of them."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Unsupported(ClientFault):
    """What this kind of provider does not do with namespaces."""

    status: ClassVar[int] = 501
