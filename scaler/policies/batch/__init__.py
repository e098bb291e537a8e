"""BATCH (SC'20): the policy, its search, and the exact law of its batches."""
