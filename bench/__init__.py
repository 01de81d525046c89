"""How fast Kept is, beside its peers: `python -m bench.engine`, `python -m bench.start`."""
