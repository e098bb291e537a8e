"""The error of a failed call of the OpenFaaS API."""

from __future__ import annotations

from carpool.errors import CarpoolError

__all__ = ["ProviderError"]


class ProviderError(CarpoolError):
    """Raised when the provider cannot be reached, or has refused a call.

    Attributes:
        answered: Whether it has refused the call.
        lasting: Whether it would refuse the same call again, whatever else changes.
    """

    status = 502

    def __init__(self, message: str, *, answered: bool = False, lasting: bool = False) -> None:
        super().__init__(message)
        self.answered = answered
        self.lasting = lasting
