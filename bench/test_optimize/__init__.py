"""What tuning an agent costs, beside holodeck-ai: the same sweeps over the same cases.

Run it as `.venv/bin/python -m bench.test_optimize [--quick] [--no-peer] [--out FOLDER]`.
"""
