"""Running functions on one machine: stack files, provider, partitions, load, demo."""
