"""Kept, gepa and best of N with a real model, on public data, for so many dollars.

Run it as `.venv/bin/python -m bench.live --model openai/gpt-5-mini --usd 5 --data FOLDER`.
"""
