"""The record of a run on disk: spine, rollout lines, packs, lock, `best/`, and the list of runs."""
