"""Tools that models are given."""
