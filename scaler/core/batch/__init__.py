"""The planning of `batch`: sizes of instance, the search, and instances enough."""
