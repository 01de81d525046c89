"""task.yaml: improve files, scored by a command, a function or a judge."""
