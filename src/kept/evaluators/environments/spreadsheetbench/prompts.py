"""What a student is told: two system prompts, the question, and what came of a program."""

import importlib.util
import re
from typing import Literal

Prompt = Literal["official", "custom"]
Mode = Literal["single", "multi", "react"]

INPUT, OUTPUT, SOLUTION = "input.xlsx", "output.xlsx", "solution.py"
"""Names of files in a workspace."""

MOST_TOLD = 3000
"""Characters of what a failing program said that a student is told: the last ones."""

MOST_WRONG = 20
"""Cells that a student or an analyst is told of."""

_OFFICIAL = """\
You are an expert in spreadsheets. You are given an instruction, a preview of a workbook, and the \
cells where the result is expected. Write one Python program that carries the instruction out. It \
finds the path of the workbook in the variable INPUT_PATH, and saves the changed workbook to \
OUTPUT_PATH; both are defined before it starts. It may use the standard library and {packages}. \
Reply with the whole program in a single ```python block."""

_CUSTOM = """

## Critical Rules
- Write values, not formulas: work every result out in Python.
- Import nothing but the standard library and {packages}.
- Read all data from the workbook. The preview shows only its beginning, and the program is \
also run on other workbooks of the same shape, so copy no values from the preview.
- Read from INPUT_PATH, save to OUTPUT_PATH, and keep all that the instruction does not change."""

_REACT = """\
You are an expert in spreadsheets. The workbook {input} lies in your workspace. Look at it with \
the tool `bash`, and carry the instruction out with a Python program in the file {solution}. It \
finds the path of the workbook in the variable INPUT_PATH, and saves the changed workbook to \
OUTPUT_PATH; both are defined before it starts. It may use the standard library and {packages}. \
It will be run on other workbooks of the same shape, too. When it is done, answer without using a \
tool."""

_ASK = {
    "single": "Write the Python program that carries the instruction out.",
    "multi": (
        "Write the Python program that carries the instruction out. It is run, and where it fails "
        "you are told how and asked again."
    ),
    "react": f"Carry the instruction out, and leave the program in {SOLUTION}.",
}

WORKSPACE = f"""\
{INPUT} is the workbook of the task. Leave the program as {SOLUTION}, or give it in your last
message. It is run with INPUT_PATH and OUTPUT_PATH defined, on this workbook and on others of the
same shape.
"""
"""Lies in the workspace of an agent CLI as README.txt."""

_FLAGS = re.DOTALL | re.MULTILINE | re.IGNORECASE
_START = r"^[ \t]*```[ \t]*(?:python3?|py)?[ \t]*\r?\n"
_FENCE = re.compile(_START + r"(.*?)^[ \t]*```", _FLAGS)
_OPEN = re.compile(_START + r"(.*)\Z", _FLAGS)


def system_of(prompt: Prompt, mode: Mode) -> str:
    """The system prompt, without the skill."""
    here = [name for name in ("openpyxl", "pandas") if importlib.util.find_spec(name)]
    packages = " and ".join(here) or "openpyxl"
    text = _REACT if mode == "react" else _OFFICIAL
    text += _CUSTOM if prompt == "custom" else ""
    return text.format(packages=packages, input=INPUT, solution=SOLUTION)


def question(data: dict[str, str], mode: Mode) -> str:
    """The instruction, where its result is expected, and how the workbook begins."""
    kind = f"Instruction type: {data['instruction_type']}\n" if data["instruction_type"] else ""
    return (
        f"# Instruction\n{data['instruction']}\n\n{kind}"
        f"Expected answer position: {data['answer_position']}\n\n"
        f"# Input spreadsheet preview\n{data['preview']}\n\n# Task\n{_ASK[mode]}"
    )


def code_in(said: str) -> str:
    """The program in a reply: its first block of code, else the whole text."""
    found = _FENCE.search(said) or _OPEN.search(said)
    return (found[1] if found else said).strip("\n") + "\n"


def failed_text(text: str) -> str:
    """What a student is told of a program that failed."""
    return (
        f"The program did not work:\n\n{text[-MOST_TOLD:]}\n\n"
        "Correct it, and reply with the whole program in a single ```python block."
    )


def wrong_text(cells: list[str]) -> str:
    """What a student is told, in training only, of a program that gives wrong values."""
    return (
        "The program ran, and these cells are not as expected:\n\n"
        + "\n".join(cells)
        + "\n\nCorrect it, and reply with the whole program in a single ```python block."
    )


PROGRAM = f'''\
import ast
import os

PATHS = {{"INPUT_PATH": os.path.abspath("{INPUT}"), "OUTPUT_PATH": os.path.abspath("{OUTPUT}")}}


class Given(ast.NodeTransformer):
    """Leaves out what would give the paths another value."""

    def visit_Assign(self, node):
        return without(node, node.targets)

    def visit_AnnAssign(self, node):
        return without(node, [node.target])


def without(node, targets):
    names = {{getattr(one, "id", "") for one in targets}}
    return ast.copy_location(ast.Pass(), node) if names <= {{*PATHS}} else node


with open("{SOLUTION}", encoding="utf-8") as file:
    tree = Given().visit(ast.parse(file.read(), "{SOLUTION}"))
exec(compile(tree, "{SOLUTION}", "exec"), {{"__name__": "__main__", **PATHS}})
'''
"""Runs the program of a student with its two paths."""
