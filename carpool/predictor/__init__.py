"""Execution times predicted from profiles of operators: profiles, fits, and the model."""
