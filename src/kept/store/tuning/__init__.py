"""The files of a run that tunes an agent, as the optimizer that it follows lays them out."""
