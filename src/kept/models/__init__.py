"""Language models: who answers a `ModelRequest`."""
