"""The gates on a real language model: a bank of recorded rollouts, and races replayed from it."""
