"""Journal and files of a run: writing, reading, verifying."""
