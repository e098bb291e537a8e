"""Running functions: what their sidecars say, what should be there, and how it comes about."""
