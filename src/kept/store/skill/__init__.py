"""The files that skill training promises, written from the journal."""
