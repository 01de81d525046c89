"""A small model that runs on this machine."""
