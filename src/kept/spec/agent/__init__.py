"""An agent.yaml and everything beside it: read, filled in, checked, every problem told at once.

Holds no secret: what may be one stays `${NAME}`, and is filled in by whoever uses it.
"""
