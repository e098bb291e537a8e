"""``carpool compare``: compare policies, in simulated time or on a running stack."""
