"""Empty: nothing of it is called without torch."""
