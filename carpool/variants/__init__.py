"""Variants of a model, states of their instances, and the choice for a request, without I/O."""
