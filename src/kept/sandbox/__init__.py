"""Commands in a sandbox: isolation, limits, workspaces and worker processes."""
