"""Decision rules and their statistics."""
