"""The sidecar's side of the sync call: what it reports to the scaler, and follows."""
