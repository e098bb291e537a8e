"""Scenarios, from which planning and simulation start, and their files."""
