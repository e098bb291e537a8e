"""Prewarm policies, one per file, their contract, and the histograms that they share."""
