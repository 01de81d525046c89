"""The journal and the files of a run."""
