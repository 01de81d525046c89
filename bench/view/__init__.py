"""What `kept view` costs over a very long run; `python -m bench.view`."""
