"""Variants of a model, how their instances are, and which of them serves a request. All pure."""
