"""Running functions on one machine: stack files, provider, load, demo."""
