"""Unpacks what was packed, compares, and weighs disk against time. Prints one JSON object."""

import io
import json
import os
import tomllib
from pathlib import Path

COMPARISONS_PER_BYTE = 25
"""So many comparisons are worth one byte saved."""

config = tomllib.loads(Path("pack.toml").read_text(encoding="utf-8"))
out = Path(os.environ["KEPT_OUTPUT"])
packed = (out / "packed.bin").read_bytes()
compared = json.loads((out / "stats.json").read_text())["compared"]
data = Path("access.log").read_bytes()

bits = io.StringIO("".join(f"{byte:08b}" for byte in packed))
unpacked = bytearray()
while len(unpacked) < len(data):
    if bits.read(1) == "0":
        unpacked.append(int(bits.read(8), 2))
        continue
    distance = int(bits.read(config["window_bits"]), 2)
    length = int(bits.read(config["length_bits"]), 2) + config["search"]["shortest"]
    for _ in range(length):
        unpacked.append(unpacked[-distance])

print(
    json.dumps(
        {
            "cost": len(packed) + compared / COMPARISONS_PER_BYTE,
            "metrics": {
                "bytes": len(packed),
                "compared": compared,
                "intact": bytes(unpacked) == data,
            },
        }
    )
)
