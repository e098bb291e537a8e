"""Compare policies over a matrix of loads, models, objectives and billing rules."""
