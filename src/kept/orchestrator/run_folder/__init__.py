"""The folder of an agent run, read and written."""
