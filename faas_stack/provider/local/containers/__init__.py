"""The docker backend: every instance is its own container."""
