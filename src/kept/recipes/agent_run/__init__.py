"""kept agent run: a task done by a manager and its workers."""
