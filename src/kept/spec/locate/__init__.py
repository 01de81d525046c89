"""Positions of keys and values in YAML, TOML and JSON texts."""
