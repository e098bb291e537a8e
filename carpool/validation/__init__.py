"""Checks of what people write: each names the value, what was expected, and where it stands."""
