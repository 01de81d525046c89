"""Programs that solve published tasks, by the id of the task; some of them write formulas."""

from collections.abc import Mapping

OPEN = """\
import re
from datetime import datetime
import openpyxl

book = openpyxl.load_workbook(INPUT_PATH)
values = openpyxl.load_workbook(INPUT_PATH, data_only=True)
sheet = book.worksheets[0]
"""
SAVE = "book.save(OUTPUT_PATH)\n"

_BODIES: Mapping[str, str] = {
    "37609": """\
for row in range(2, sheet.max_row + 1):
    sheet[f"C{row}"] = f'=IF(OR(N(A{row})>=7,N(B{row})>=7),"e","-")'
""",
    "17251": """\
last = sheet.max_row
for row in range(2, last + 1):
    sheet[f"C{row}"] = f'=COUNTIFS($A$2:$A${last},A{row},$B$2:$B${last},"<"&B{row})+1'
""",
    "39604": """\
sheet["C4"] = "=IF(B4<=20,0,IF((B3*1000)<22000,B4-20,B4-30))"
""",
    "32255": """\
for row in range(2, 14):
    sheet[f"D{row}"] = f'=IF(A{row}="","",IF(A{row}=0,1,0))'
""",
    "79-7": """\
for cells in sheet.iter_rows():
    for cell in cells:
        if isinstance(cell.value, str):
            cell.value = cell.value.replace('"', "")
""",
    "599-9": """\
for row in range(2, sheet.max_row + 1):
    if isinstance(sheet.cell(row, 7).value, datetime):
        sheet.cell(row, 11).value = sheet.cell(row, 7).value
""",
    "416-15": """\
for row in range(2, sheet.max_row + 1):
    said = sheet.cell(row, 1).value
    if isinstance(said, str) and "T" in said:
        sheet.cell(row, 1).value = datetime.strptime(said.split("T")[0], "%Y-%m-%d")
""",
    "134-14": """\
for row in range(sheet.max_row, 1, -1):
    if "\\u2713" in str(sheet.cell(row, 2).value):
        sheet.delete_rows(row)
""",
    "230-16": """\
for row in range(2, sheet.max_row + 1):
    said = sheet.cell(row, 1).value
    found = re.search("[A-Za-z]", said) if isinstance(said, str) else None
    if found:
        sheet.cell(row, 2).value = said[found.start():]
        sheet.cell(row, 1).value = said[:found.start()].strip()
""",
    "532-24": """\
for row in range(3, 18):
    book["Sheet3"][f"D{row}"] = f"=INDIRECT(\\"'Sheet2'!\\"&C{row})"
""",
    "239-25": """\
for row in range(sheet.max_row, 1, -1):
    age = values.worksheets[0].cell(row, 13).value
    if isinstance(age, (int, float)) and age <= 90:
        sheet.delete_rows(row)
""",
    "336-1": """\
scores = {}
for row in range(2, sheet.max_row + 1):
    name, score = sheet.cell(row, 1).value, sheet.cell(row, 2).value
    if name is not None:
        scores.setdefault(name, set()).add(score)
for row, name in enumerate(sorted(scores), 2):
    sheet.cell(row, 5).value = name
    for column, score in enumerate(sorted(scores[name], reverse=True), 6):
        sheet.cell(row, column).value = score
""",
    "398-47": """\
seen = set()
rows = [[cell.value for cell in cells] for cells in values.worksheets[0].iter_rows(max_col=15)]
left = [rows[0]]
for cells in rows[1:]:
    if cells[14] not in seen:
        left.append(cells)
    seen.add(cells[14])
for row in range(1, len(rows) + 1):
    for column in range(1, 16):
        sheet.cell(row, column).value = left[row - 1][column - 1] if row <= len(left) else None
""",
    "37228": """\
for row in range(2, sheet.max_row + 1):
    windows, which = sheet.cell(row, 6).value, sheet.cell(row, 5).value
    if isinstance(windows, str):
        parts = [part.strip() for part in windows.split("/")]
        sheet.cell(row, 7).value = parts[min(int(which), len(parts)) - 1]
""",
}

PROGRAMS: Mapping[str, str] = {
    name: f"```python\n{OPEN}{body}{SAVE}```" for name, body in _BODIES.items()
}
