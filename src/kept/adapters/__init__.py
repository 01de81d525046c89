"""Ways in for people who already have something: each takes a peer's parts as they are.

A peer is imported where it is used, never with this package.
"""
