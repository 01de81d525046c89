"""kept compare: find out which of several versions is better."""
