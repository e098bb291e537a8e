"""Request and response formats of inference protocols."""
