"""Models that run stage by stage: what a stage is, and the thread that runs them."""
