"""Agent CLIs such as claude, codex and opencode, run in the sandbox."""
