"""kept agent optimize: improve the prompts of agent runs on a suite of tasks."""
