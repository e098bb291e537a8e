"""``carpool demo``: real models, real predictions, one load under two batch policies."""
