"""SpreadsheetBench: a model edits workbooks with code."""
