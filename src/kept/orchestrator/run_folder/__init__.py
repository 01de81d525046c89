"""Reader and writer of the folder of an agent run."""
