"""Whether coordinate descent finds numbers and words together, where the best number moves.

Run it as `.venv/bin/python -m bench.descent [--quick] [--seeds N] [--arms "a;b"] [--out FOLDER]`.
"""
