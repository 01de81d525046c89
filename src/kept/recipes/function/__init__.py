"""kept.optimize: improve a text, scored by a function."""
