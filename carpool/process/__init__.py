"""Child processes: one of them, the loop that keeps one running, and what they leave behind."""
