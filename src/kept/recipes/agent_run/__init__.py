"""kept agent run: run a task with a manager and its workers."""
