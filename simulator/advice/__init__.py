"""Which policy and settings for a trace of one's own, what they cost and miss, how sure that is."""
