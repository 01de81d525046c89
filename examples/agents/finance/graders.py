"""A grader as HoloDeck has it: whether an answer was computed by the steps that the turn says."""

from holodeck.lib.test_runner.code_grader import GraderContext, GraderResult


def same_program(ctx: GraderContext) -> GraderResult:
    """Each step of the turn's `program` was made, in this order, with these numbers."""
    wanted = [(step["tool"], step["args"]) for step in ctx.turn_config.get("program", [])]
    made = [(use.name, dict(use.args)) for use in ctx.tool_invocations if use.name != "lookup"]
    right = sum(one == other for one, other in zip(wanted, made, strict=False))
    most = max(len(wanted), len(made))
    score = right / most if most else 1.0
    return GraderResult(
        score=score,
        passed=score == 1.0,
        reason=f"{right} of {most} steps as expected",
        details={"turn": ctx.turn_index, "case": ctx.test_case_name, "made": [n for n, _ in made]},
    )
