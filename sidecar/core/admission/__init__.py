"""Whether a request can be answered in time, and what happens to one that cannot."""
