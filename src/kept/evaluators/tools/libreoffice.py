"""Headless LibreOffice: recalculates the formulas of workbooks, in the sandbox.

Libraries that write workbooks store formulas without their values. LibreOffice opens a copy of such
a workbook and saves it with the values. It runs in the sandbox without the network, with a profile
of its own and limits of time and memory. All its processes are ended with it.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import join, quote

from kept.core.rollout import Failure
from kept.evaluators.tools.python_code import Bench
from kept.sandbox.command import Exit, Limits
from kept.sandbox.workspace import Output
from kept.settings import child_environment

PROGRAMS = ("soffice", "libreoffice")
DEBIAN = "libreoffice-calc"
SECONDS = 120.0
"""Time limit for all workbooks of one call."""

_MIB = 1024 * 1024
LIMITS = Limits(memory=4096 * _MIB, file_size=64 * _MIB, tree=256 * _MIB, processes=128)
MOST_BYTES = 64 * _MIB
"""Maximum size of all returned workbooks."""

_FORMAT = "Calc MS Excel 2007 XML"
_SETTINGS = {
    # a link to another file or page is never followed, and no macro is ever run
    "/org.openoffice.Office.Calc/Content/Update": {"Link": "2"},
    "/org.openoffice.Office.Common/Security/Scripting": {
        "MacroSecurityLevel": "3",
        "DisableMacrosExecution": "true",
        "BlockUntrustedRefererLinks": "true",
        "DisableActiveContent": "true",
    },
    # values that another program stored stay as they are
    "/org.openoffice.Office.Calc/Formula/Load": {"OOXMLRecalcMode": "1"},
}


def find_office() -> Path | None:
    """Path of the program; None if it is not installed."""
    path = child_environment({})["PATH"]
    found = (shutil.which(name, path=path) for name in PROGRAMS)
    return next((Path(one) for one in found if one), None)


async def recalculated(
    bench: Bench, books: Mapping[str, bytes], seconds: float = SECONDS
) -> Mapping[str, bytes] | Failure:
    """Recalculated workbooks by name; those that LibreOffice could not open are missing.

    Names are plain, as `1.xlsx`. A timeout is the candidate's failure.
    """
    program = find_office()
    if program is None:
        message = f"there is no {PROGRAMS[0]}, which works out formulas"
        return Failure("harness", "infrastructure", message, tried=True)
    files = {f"in/{name}": data for name, data in books.items()}
    files |= {"profile/user/registrymodifications.xcu": _profile().encode()}
    words = [str(program), "--headless", "--norestore", "--nolockcheck", "--nodefault"]
    words += [f"--infilter={_FORMAT}", "--convert-to", f"xlsx:{_FORMAT}", "--outdir", "out"]
    line = (
        'mv profile "$HOME/profile" && exec '
        f'{join(words)} "-env:UserInstallation=file://$HOME/profile" '
        + " ".join(quote(f"in/{name}") for name in sorted(books))
    )
    ended, output = await replace(bench, limits=LIMITS).run(line, files, MOST_BYTES, seconds)
    for failure in (ended, output):
        if isinstance(failure, Failure):
            return failure
    assert isinstance(ended, Exit) and isinstance(output, Output)
    if ended.timed_out:
        message = f"LibreOffice did not work the formulas out within {seconds:g} seconds"
        return Failure("timeout", "candidate", message)
    made = {name: output.files.get(f"out/{name}") for name in books}
    return {name: data for name, data in made.items() if data is not None}


def _profile() -> str:
    items = "".join(
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value>'
        "</prop></item>"
        for path, values in _SETTINGS.items()
        for name, value in values.items()
    )
    schema = 'xmlns:oor="http://openoffice.org/2001/registry"'
    types = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
    kinds = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<oor:items {schema} {types} {kinds}>{items}</oor:items>\n"
    )
