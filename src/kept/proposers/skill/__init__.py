"""Proposers of skill training: what a batch of rollouts suggests, and what whole epochs do.

Each is a function of its brief. What happened on the way (patches, what was merged, what was
chosen, what applied) is told in `about` of the reply, which is all that later steps and files know.
"""
