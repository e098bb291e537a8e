"""Child processes: starting one, keeping one running, and cleaning up what they leave behind."""
