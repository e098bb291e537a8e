"""How requests arrive: arrival processes, statistics of observed arrivals, and fitting."""
