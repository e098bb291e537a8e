"""``carpool compare``: policies side by side, in simulated time or on a running stack."""
