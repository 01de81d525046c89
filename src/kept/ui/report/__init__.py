"""Reports of a run: markdown, JSON, JUnit."""
