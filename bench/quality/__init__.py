"""What users pick today against Kept: true gain at the same rollouts, and what each claims.

Run it as `.venv/bin/python -m bench.quality [--quick] [--runs N]`; no model is called.
"""
