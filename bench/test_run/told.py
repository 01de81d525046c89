"""What whole commands took, as benches that run them tell it."""

from collections.abc import Mapping, Sequence

from bench.harness import ratio
from bench.test_run.world import Took

KEPT = "kept"

Found = Mapping[str, Sequence[Took]]
"""By command, round by round."""


def as_json(found: Mapping[str, Found]) -> dict[str, object]:
    return {
        name: {arm: [one._asdict() for one in rows] for arm, rows in took.items()}
        for name, took in found.items()
    }


def against(took: Found, arm: str) -> tuple[str, str]:
    """Kept's wall and processor time, of another command's in the same rounds."""
    if arm == KEPT or KEPT not in took:
        return "", ""
    kept, other = took[KEPT], took[arm]
    return (
        ratio([one.wall for one in kept], [one.wall for one in other]),
        ratio([one.cpu for one in kept], [one.cpu for one in other], 3),
    )
