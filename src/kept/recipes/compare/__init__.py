"""kept compare: which of two versions is better."""
