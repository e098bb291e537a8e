"""How requests arrive: processes, what is seen of them, and fitting the one to the other."""
