"""``carpool load``: an open-loop load generator."""
