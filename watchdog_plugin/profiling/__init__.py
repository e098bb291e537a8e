"""Measures and predicts how long models and operators take: profile, predict, calibrate."""
