"""``carpool demo``: serve real models, check their predictions, and compare two batch policies."""
