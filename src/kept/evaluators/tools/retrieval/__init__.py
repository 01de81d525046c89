"""Search in documents, by words and by vectors."""
