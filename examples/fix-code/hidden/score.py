"""Compares results with what is expected: python hidden/score.py INPUTS EXPECTED RESULTS."""

import json
import sys
from pathlib import Path

inputs, expected, results = (json.loads(Path(name).read_bytes()) for name in sys.argv[1:])
failed = [
    f"merge({given}) is {result['result']}, not {wanted}"
    for given, wanted, result in zip(inputs, expected, results, strict=True)
    if result["result"] != wanted
]
score = {
    "test_pass_rate": 1 - len(failed) / len(expected),
    "changed_input": any(result["changed_input"] for result in results),
    "lines": len(Path("intervals.py").read_text(encoding="utf-8").splitlines()),
    "findings": failed,
}
print(json.dumps(score))
