"""Owns the version number: packaging and `kept --version` both read it here."""

__version__ = "0.1.0"
