"""Building blocks shared by several scaling policies."""
