"""The conformance suite of batch policies; call it as `carpool.testing.check_policy`."""

from sidecar.conformance.suite import check_policy

__all__ = ["check_policy"]
