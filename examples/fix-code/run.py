"""Calls the candidate on every input: python run.py INPUTS."""

import copy
import json
import sys
from pathlib import Path

from intervals import merge

results = []
for given in json.loads(Path(sys.argv[1]).read_bytes()):
    before = copy.deepcopy(given)
    results.append({"result": merge(given), "changed_input": given != before})
print(json.dumps(results))
