"""The sidecar's side of the sync call: reports to the scaler, plans from it."""
