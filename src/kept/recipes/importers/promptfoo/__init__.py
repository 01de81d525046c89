"""promptfoo configs as tasks."""
