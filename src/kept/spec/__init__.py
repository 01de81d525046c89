"""YAML, TOML and JSON with line numbers, and their validation."""
