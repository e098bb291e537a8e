"""The docker backend: every instance is a container of its own."""
