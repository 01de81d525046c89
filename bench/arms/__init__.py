"""What is measured: each arm is a process of its own that prints one line of JSON.

An arm of a peer runs in that peer's environment, so it imports `bench.world` and `bench.reading`
alone.
"""
