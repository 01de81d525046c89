"""Proposers: functions from a brief to edits."""
