"""What plans are made of: sizes of instances, what they cost, and where there is capacity."""
