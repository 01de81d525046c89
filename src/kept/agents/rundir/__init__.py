"""The folder of a finished run: read in every shape, written in that of the source."""
