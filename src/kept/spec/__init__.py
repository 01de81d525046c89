"""What users write: read with line numbers, checked, and every problem told at once.

Imports pydantic and ruamel.yaml, which are slow: import this package where a spec is read, not
before.
"""
