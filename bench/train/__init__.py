"""What an epoch of training costs: calls, throughput, processor time, files.

Run it as `.venv/bin/python -m bench.train [--quick] [--no-skillopt] [--out FOLDER]`.
"""
