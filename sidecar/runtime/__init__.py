"""The shell around the core: sockets, processes, the clock, metrics. It decides nothing."""
