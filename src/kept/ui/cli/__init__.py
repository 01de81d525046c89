"""Command line of Kept."""
