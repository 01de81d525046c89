"""The agent that both commands tune: one number, which nothing depends on, so that no trial wins.

Every trial is one sweep over the cases, and none changes what comes after it: both commands ask the
model the same number of times. Half of the cases pass, so that there is a loss to bring down.
"""

from dataclasses import dataclass

from bench.test_run.world import Server, Took, timed

AT_ONCE = 8

AGENT = """\
name: answers
model:
  provider: openai
  name: gpt-5-mini
  endpoint: "{url}"
  api_key: "${{OPENAI_API_KEY}}"
  temperature: 0.5
instructions: {{inline: You answer in one word.}}
execution: {{parallel_test_cases: {at_once}}}
evaluations:
  metrics:
    - {{type: standard, metric: equality, threshold: 1.0}}
  optimizer:
    loss: {{equality: 1.0}}
    max_cycles: 1
    numeric_phase: {{max_trials: {trials}, patience: {trials}}}
    seed: 1
    axes:
      numeric:
        - {{path: model.temperature, type: float, range: [0.0, 1.0]}}
"""
KEPT_ALONE = """\
    gate: sigma
    repeats: 1
    holdout_eval_policy: skip
    train_cases_file: cases.yaml
    numeric_convergence_eps: 0
"""
"""One sweep a trial and none of holdout, which is what the peer does; to the last trial."""
CASE = "- {{name: case-{n}, input: 'What is question {n}?', ground_truth: {truth}}}\n"


@dataclass(frozen=True, slots=True)
class Task:
    """What both arms are to do."""

    sweeps: int
    cases: int

    @property
    def calls(self) -> int:
        return self.sweeps * self.cases


def run_command(program: str, task: Task, server: Server, *, kept: bool) -> Took:
    """`PROGRAM test optimize agent.yaml` in a fresh folder: a baseline, and a sweep a trial."""
    cases = "".join(
        CASE.format(n=n, truth="forty-three" if n % 2 else "forty-two") for n in range(task.cases)
    )
    agent = AGENT.format(url=server.url, at_once=AT_ONCE, trials=task.sweeps - 1)
    if kept:
        files = {"agent.yaml": agent + KEPT_ALONE, "cases.yaml": cases}
    else:
        indented = "".join(f"  {line}\n" for line in cases.splitlines())
        files = {"agent.yaml": f"{agent}test_cases:\n{indented}"}
    return timed([program, "test", "optimize", "agent.yaml"], files, server, task.calls)
