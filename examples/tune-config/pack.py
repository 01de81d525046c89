"""Packs a log file: repetitions become references to what was read before (LZ77).

How far back it looks, how long a repetition it takes and how hard it searches stand in pack.toml.
Writes what it packed, and how often it compared: the one costs disk, the other time.
"""

import json
import os
import tomllib
from pathlib import Path


class Bits:
    """Bits, the first one first."""

    def __init__(self) -> None:
        self.bits: list[str] = []

    def add(self, value: int, width: int) -> None:
        """Put a number behind them."""
        self.bits.append(f"{value:0{width}b}")

    def bytes(self) -> bytes:
        """All of them, filled up to whole bytes."""
        text = "".join(self.bits)
        text += "0" * (-len(text) % 8)
        return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


class Packer:
    """Finds repetitions and counts what that takes."""

    def __init__(self, config: dict, data: bytes) -> None:
        self.data = data
        self.window = 2 ** config["window_bits"] - 1
        self.shortest = config["search"]["shortest"]
        self.longest = self.shortest + 2 ** config["length_bits"] - 1
        self.depth = config["search"]["depth"]
        self.patient = config["search"]["patient"]
        self.seen: dict[bytes, list[int]] = {}
        self.compared = 0

    def remember(self, at: int) -> None:
        """Know this place again."""
        self.seen.setdefault(self.data[at : at + self.shortest], []).append(at)

    def repetition(self, at: int) -> tuple[int, int]:
        """Length and distance of the longest repetition, 0 when there is none."""
        best = (0, 0)
        earlier = self.seen.get(self.data[at : at + self.shortest], [])
        for start in earlier[: -self.depth - 1 : -1]:
            self.compared += 1
            if at - start > self.window:
                break
            length = 0
            while (
                length < self.longest
                and at + length < len(self.data)
                and self.data[start + length] == self.data[at + length]
            ):
                length += 1
            if length >= self.shortest and length > best[0]:
                best = (length, at - start)
        return best

    def pack(self, window_bits: int, length_bits: int) -> bytes:
        """The data as single bytes and references."""
        out = Bits()
        at = 0
        while at < len(self.data):
            length, distance = self.repetition(at)
            self.remember(at)
            # a longer one may begin with the next byte
            if self.patient and length and self.repetition(at + 1)[0] > length:
                length = 0
            if not length:
                out.add(self.data[at], 9)
                at += 1
                continue
            out.add(1, 1)
            out.add(distance, window_bits)
            out.add(length - self.shortest, length_bits)
            for inside in range(at + 1, at + length):
                self.remember(inside)
            at += length
        return out.bytes()


config = tomllib.loads(Path("pack.toml").read_text(encoding="utf-8"))
data = Path("access.log").read_bytes()
packer = Packer(config, data)
packed = packer.pack(config["window_bits"], config["length_bits"])
out = Path(os.environ["KEPT_OUTPUT"])
(out / "packed.bin").write_bytes(packed)
(out / "stats.json").write_text(json.dumps({"compared": packer.compared}))
