"""What a model may use: functions of a user, servers of tools, prompts, indexes.

Each kind has what is open for a whole run (processes, a session), shared by all candidates, and
hands out tools, which are cheap. None raises for what goes wrong inside: the model is told, or the
rollout fails with a `Failure`.
"""
