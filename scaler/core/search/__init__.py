"""Which instances take a load: the searches of `infless`, and placing what they chose."""
