"""Validation of user input: errors name the value, what was expected, and its place."""
