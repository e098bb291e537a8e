"""``carpool register``: variants of a trained model, measured and kept."""
