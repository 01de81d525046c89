"""The source writes a refusal of L0 twice, once without saying in which iteration."""

from pathlib import Path

from kept.orchestrator.run_folder.read import read_loss
from tests.orchestrator.run_folder.made import put_rows, refused


def test_a_refusal_of_l0_that_was_written_twice_counts_once(tmp_path: Path):
    put_rows(tmp_path / "metrics.jsonl", refused(-1, "l0"), refused(3, "l0"))
    loss = read_loss(tmp_path)
    assert loss.signals.rejections == 1
    # doubled, the part would be full at the first refusal
    assert loss.parts()["gate_reject"] == 0.075
