"""Intervals as pairs of numbers."""


def merge(intervals: list[list[float]]) -> list[list[float]]:
    """The same ground in as few intervals as possible, sorted."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start < merged[-1][1]:
            merged[-1][1] = end
        else:
            merged.append([start, end])
    return merged
