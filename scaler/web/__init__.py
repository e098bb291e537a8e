"""What people and programs read of a scaler: Flask under gunicorn, over a snapshot of its state."""
