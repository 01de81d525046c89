"""Kept, gepa and best of N with a real model, for so many dollars.

Run it as `.venv/bin/python -m bench.live --model openai/gpt-5-mini --usd 5 --data FOLDER`. Stopped,
it goes on where it was with the same command: what was paid for is not paid for again.
"""

import argparse
import asyncio
import hashlib
import json
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import NoReturn

from bench.harness import ROOT, ArmFailed, say
from bench.live.compare import Comparison, Terms, arms
from bench.live.ledger import Ledger
from bench.live.page import report
from bench.live.sets import SETS, BadData, Sample, read_sample
from bench.peer import gepa_python
from bench.report import RESULTS, show
from kept.errors import LockedError, SetupError
from kept.models.client import HttpModel, make
from kept.models.prices import MILLION, Rates
from kept.models.providers import PROVIDERS, ModelConfig, Price, config_of, missing

ROLLOUTS, CASES, FRESH, MAX_TOKENS = 500, 60, 100, 4096

GOES_ON = "the same command goes on from here, and pays for nothing twice"

WHERE = """a folder of data has
  gsm8k/train.jsonl, gsm8k/test.jsonl    github.com/openai/grade-school-math, MIT
  bbh/*.json                             github.com/suzgunmirac/BIG-Bench-Hard, MIT
  ifeval/input_data.jsonl                github.com/google-research/google-research, Apache-2.0"""


def main() -> None:
    given = arguments()
    model = asked_model(given)
    price = rates_of(model)
    samples = read_data(given)
    folder = given.keep or ROOT / "bench" / ".live" / name_of(given, samples)
    gepa = None if given.no_gepa else gepa_python()
    terms = Terms(given.rollouts, given.max_tokens, price, arms(gepa))
    with opened(folder, given.usd) as ledger:
        say(f"up to ${given.usd:.2f}, of which ${ledger.usd():.2f} are spent; kept in {folder}")
        try:
            rows = asyncio.run(Comparison(folder, model, ledger, terms).run(samples))
        except KeyboardInterrupt:
            stop(f"stopped after ${ledger.usd():.2f}", GOES_ON, code=130)
        except ArmFailed as error:
            stop(f"{error}\nafter ${ledger.usd():.2f}", GOES_ON, code=1)
        found = report(rows, samples, ledger.usd(), given.usd)
    part = given.sets != ",".join(SETS) or len(samples) < len(SETS) or given.no_gepa
    show(found, given.out or (None if part else RESULTS), model=given.model)


def opened(folder: Path, cap: float) -> Ledger:
    """What was paid for; ends with a message where somebody else pays from it at this moment."""
    try:
        return Ledger(folder / "ledger.jsonl", cap)
    except LockedError as error:
        stop(error.message, "wait for it: two at once would spend the cap twice")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.live", description="Kept, gepa and best of N.")
    parser.add_argument("--model", required=True, help="provider/model, as in openai/gpt-5-mini")
    parser.add_argument("--usd", type=float, required=True, help="the most that all may cost")
    parser.add_argument("--data", type=Path, help="folder with gsm8k, bbh and ifeval")
    parser.add_argument("--price", help="IN,OUT: dollars for a million tokens, if not listed")
    parser.add_argument("--sets", default=",".join(SETS), help="by name, separated by commas")
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS, help="of each arm on each set")
    parser.add_argument("--cases", type=int, default=CASES, help="questions to search with")
    parser.add_argument("--fresh", type=int, default=FRESH, help="questions to measure with")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="of a reply")
    parser.add_argument("--no-gepa", action="store_true", help="leave the peer out")
    parser.add_argument("--keep", type=Path, help="folder for what was paid for")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    unknown = [name for name in given.sets.split(",") if name not in SETS]
    if unknown:
        parser.error(f"there is no set `{unknown[0]}`; there are {', '.join(SETS)}")
    if not 0 < given.usd < inf:
        parser.error("--usd is what may be spent: more than 0, and not without end")
    for name in ("rollouts", "cases", "fresh", "max_tokens"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is 1 or more")
    return given


def asked_model(given: argparse.Namespace) -> HttpModel:
    """The model that is meant; ends with a message where it cannot be asked, or has no price."""
    # `openai:gpt-5-mini` is how others spell it
    head, colon, tail = given.model.partition(":")
    text = f"{head}/{tail}" if colon and head in PROVIDERS else given.model
    try:
        plain = config_of(text)
        config = ModelConfig(
            provider=plain.provider,
            model=plain.model,
            max_tokens=given.max_tokens,
            price=declared_price(given.price),
        )
        lack = missing(config)
        if lack:
            stop(
                f"cannot ask `{config.name}`: {lack}", "this bench asks a real model, with your key"
            )
        if PROVIDERS[config.provider].speech == "none":
            stop(f"`{config.name}` is no model behind HTTP", "name one of a provider")
        return make(config)
    except SetupError as error:
        stop(str(error), "write provider/model, as in openai/gpt-5-mini")


def declared_price(text: str | None) -> Price | None:
    if text is None:
        return None
    try:
        given, said = (float(part) for part in text.split(","))
        if not (0 <= given < inf and 0 <= said < inf):
            raise ValueError
    except ValueError:
        stop(f"`{text}` is no price", "write --price IN,OUT, dollars for a million tokens each")
    return Price(input=given, output=said)


def rates_of(model: HttpModel) -> tuple[float, float, float]:
    """Dollars for a million tokens; ends with a message where nobody knows."""
    rates: Rates | None = model.rates
    if rates is None:
        words = f"the price of `{model.name}` is not known, and a cap needs one"
        stop(words, "declare it: --price IN,OUT, dollars for a million tokens each")
    return tuple(rate.most * MILLION for rate in (rates.input, rates.output, rates.cached))  # pyright: ignore[reportReturnType] # three of them


def read_data(given: argparse.Namespace) -> list[Sample]:
    if given.data is None or not given.data.is_dir():
        where = "--data is not given" if given.data is None else f"there is no {given.data}"
        stop(f"no data: {where}", WHERE)
    samples: list[Sample] = []
    for name in given.sets.split(","):
        try:
            found = read_sample(given.data, name, given.cases, given.fresh)
        except BadData as error:
            stop(str(error), WHERE)
        if found is None:
            say(f"without {name}: {given.data} has no folder of that name")
        else:
            samples.append(found)
            say(f"{name}: {found.left_out} rows left out") if found.left_out else None
    if not samples:
        stop(f"no data: {given.data} has none of {', '.join(SETS)}", WHERE)
    return samples


def name_of(given: argparse.Namespace, samples: list[Sample]) -> str:
    """Of a comparison: the same for the same command and data, whatever the cap."""
    asked = [given.model, given.rollouts, given.max_tokens, given.no_gepa]
    text = json.dumps([*asked, *map(asdict, samples)], sort_keys=True)
    model = "".join(c if c.isalnum() or c in "-." else "-" for c in given.model)
    return f"{model}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def stop(what: str, hint: str, code: int = 2) -> NoReturn:
    say(f"{what}\n\nhint: {hint}")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
