"""Scores the outline of a skill by rubric.md: python scripts/score_task.py OUTPUT."""

import json
import re
import sys
from pathlib import Path

TOPICS = ("test", "error", "name", "security", "performance", "size")
PROMISES = ("excellent", "flawless", "guaranteed")
MAX_WORDS, MAX_REPEATS = 20, 4


def main() -> None:
    """Print the seed's metrics as one JSON object."""
    outline = json.loads(Path(sys.argv[1], "outline.json").read_bytes())
    body, sections = outline["body"], outline["sections"]
    words = re.findall(r"[a-z]+", body.lower())
    counts = {topic: sum(word.startswith(topic) for word in words) for topic in TOPICS}
    prose = re.sub(r"^#.*$", "", body, flags=re.MULTILINE)
    sentences = [s.split() for s in re.split(r"[.:]\s|\n-|\n\n", prose) if s.strip(" -\n")]
    coverage = sum(n > 0 for n in counts.values()) / len(TOPICS)
    brief = sum(len(sentence) <= MAX_WORDS for sentence in sentences) / len(sentences)
    clarity = (brief + ("\n- " in body)) / 2
    violations = [f"`{topic}` stands {n} times" for topic, n in counts.items() if n > MAX_REPEATS]
    violations += [f"the section `{s}` stands twice" for s in {*sections} if sections.count(s) > 1]
    violations += [f"it promises to be {word}" for word in PROMISES if word in words]
    obeys = {"name", "description"} <= outline["fields"].keys() and {"Steps", "Output"} <= {
        *sections
    }
    score = {
        "primary_score": 0.6 * coverage + 0.4 * clarity,
        "metrics": {
            "clarity": clarity,
            "coverage": coverage,
            "constraint_obedience": obeys,
            "violation_count": len(violations),
            "length_tokens": len(re.findall(r"\w+|[^\w\s]", body)),
        },
        "findings": violations + [f"says nothing about {t}" for t, n in counts.items() if not n],
    }
    print(json.dumps(score))


main()
