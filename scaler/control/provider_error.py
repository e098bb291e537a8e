"""A call of the OpenFaaS API that has failed."""

from __future__ import annotations

from carpool.errors import CarpoolError

__all__ = ["ProviderError"]


class ProviderError(CarpoolError):
    """The provider cannot be reached, or has refused a call.

    Attributes:
        answered: It has refused.
        lasting: It would refuse the same call again, whatever else changes.
    """

    status = 502
    retryable = True

    def __init__(self, message: str, *, answered: bool = False, lasting: bool = False) -> None:
        super().__init__(message)
        self.answered = answered
        self.lasting = lasting
