"""Version number, read by packaging and by `kept --version`."""

__version__ = "0.1.0"
