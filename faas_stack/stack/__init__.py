"""A stack file and what ``carpool up`` makes of it on this machine."""
