"""The policy `carpool`: the least bill in time, with the batches that arrivals really give."""
