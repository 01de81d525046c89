"""Compares the label that the model gave with the one that the review has."""

import json


def score(output: str, case: dict[str, str]) -> dict[str, object]:
    """1 for the right label, 0 for the other."""
    said = json.loads(output)["label"]
    wrong = f"{case['label']}, and not {said}: {case['review']}"
    return {"accuracy": float(said == case["label"]), "findings": [wrong] * (said != case["label"])}
