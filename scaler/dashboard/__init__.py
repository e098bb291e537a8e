"""The dashboard: a page, and the recent history of every function that it shows."""
