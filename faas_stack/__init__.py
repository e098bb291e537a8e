"""Run functions on one machine: stack files, provider, partitions, load generator, demo."""
