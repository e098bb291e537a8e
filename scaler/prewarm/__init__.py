"""Prewarm policies, one a file, their contract, and the histograms that they share."""
