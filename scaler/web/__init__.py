"""The read API and page of a scaler: Flask under gunicorn, over a snapshot of its state."""
