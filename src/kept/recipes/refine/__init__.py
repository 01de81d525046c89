"""kept refine: improve the deliverable of a finished agent run."""
