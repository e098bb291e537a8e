"""What surrounds the core: sockets, processes, the clock, metrics. It decides nothing."""
