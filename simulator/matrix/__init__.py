"""Policies on a matrix of loads, models, objectives and billing rules, beside a lower bound."""
