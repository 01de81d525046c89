from pathlib import Path

import pytest

from kept.models.weights import KNOWN


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The weights; `scripts/test` fetches them."""
    weights = KNOWN["smollm2"]
    if not weights.present:
        pytest.skip("the weights are not here: `kept models pull smollm2` fetches them")
    pytest.importorskip("xllamacpp")
    return weights.path
