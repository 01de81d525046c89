"""Importers: promptfoo configs, cases, functions and skills become tasks."""
