"""``carpool profile``: how long a model and its operators take."""
