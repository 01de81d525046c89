"""What training keeps where students are noisy: true gain, and harmful rules in the skill.

Run it as `.venv/bin/python -m bench.train_world [--quick] [--reads] [--seeds N] [--out FOLDER]`.
"""
