"""What a run of an agent's test cases costs, beside holodeck-ai, whose files Kept reads.

Run it as `.venv/bin/python -m bench.test_run [--quick] [--no-peer] [--out FOLDER]`.
"""
