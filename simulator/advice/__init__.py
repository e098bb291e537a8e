"""Recommend a policy and settings for a recorded trace, with cost, misses and confidence."""
