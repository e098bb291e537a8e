"""Sequence lengths in the benchmarks of LazyBatching, with the share of each length."""

__all__ = ["LENGTHS", "MEAN_LENGTH"]

LENGTHS = {5: 0.2, 15: 0.45, 25: 0.25, 35: 0.1}  # of the authors' public prototype
MEAN_LENGTH = sum(length * share for length, share in LENGTHS.items())
