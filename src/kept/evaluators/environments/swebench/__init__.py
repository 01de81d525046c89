"""SWE-bench: a model fixes an issue in a repository."""
