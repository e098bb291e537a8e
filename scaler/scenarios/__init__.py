"""Scenarios, the inputs of planning and simulation, and their files."""
