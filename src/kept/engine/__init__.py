"""The one loop and what it runs on: evaluation, call replay, judging a step.

Knows the ports and nothing behind them.
"""
