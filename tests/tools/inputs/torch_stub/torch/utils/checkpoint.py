"""Nothing of it is called without torch."""
