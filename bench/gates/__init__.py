"""What each gate keeps, and at what price, in worlds whose truth is known.

Run it as `.venv/bin/python -m bench.gates [--quick] [--full] [--shifted]`; no model is called.
"""
