"""Where each key and value of a YAML, TOML or JSON text stands."""
