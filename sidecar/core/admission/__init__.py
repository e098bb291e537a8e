"""Admission control: which requests are queued, and which are refused at once."""
