"""Refinement of a finished run: what is wrong with it, who mends it, and what is kept of that."""
