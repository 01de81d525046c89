"""Environments: where the cases of a skill come from, how it is run on them, how that is scored.

An environment implements the Protocol of `contract`. Whoever trains or measures a skill sees none
of them, only what `opened` describes.
"""
