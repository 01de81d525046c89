"""A task to compare prompts in, made of shell commands: pass or fail by the case and by luck."""

import json
from pathlib import Path

# A case passes by its own chance, in 256ths, and by what the prompt says. What the shell can do
# itself it does: a process costs more than all the rest of a rollout.
RUN = r"""
read -r case <"$KEPT_CASE"
chance=${case##*\"chance\":}; chance=${chance%%[!0-9 ]*}
while read -r line; do for word in $line; do case $word in
  good*) chance=$((chance + 100)) ;;
  bad*) chance=$((chance - 100)) ;;
esac; done; done <"$KEPT_CANDIDATE/prompt.md"
luck=$(od -An -N1 -tu1 /dev/urandom)
test $((luck)) -lt $((chance)); echo $((1 - $?)) >"$KEPT_OUTPUT/passed"
"""
STEADY = RUN.replace("luck=$(od -An -N1 -tu1 /dev/urandom)", "luck=128")
SCORE = r"""read -r passed <"$KEPT_OUTPUT/passed"; printf '{"score": %d}' "$passed" """

SPEC = """
artifacts: {include: [prompt.md]}
runner: {command: "sh run.sh"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
workers: 4
sandbox: {walls: "off"}
"""
# without walls, which take a third of such a rollout: what they hold back is tested elsewhere


def write_comparison(folder: Path, *, cases: int = 12, run: str = RUN, spec: str = SPEC) -> None:
    """A seed that passes two cases in five, and texts that are better, alike and worse."""
    texts = {"prompt": "plain", "better": "good good", "alike": "neutral", "worse": "bad bad"}
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text + "\n")
    (folder / "run.sh").write_text(run)
    (folder / "score.sh").write_text(SCORE)
    (folder / "task.yaml").write_text(spec)
    write_cases(folder, cases)


def write_cases(folder: Path, count: int) -> None:
    rows = ({"id": f"c{n}", "chance": 60 + 10 * (n % 9)} for n in range(count))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
