"""What a model may use besides its own words: implementations of `kept.core.ports.Tool`."""
