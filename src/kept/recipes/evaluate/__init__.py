"""kept eval: measure a spec without changing anything."""
