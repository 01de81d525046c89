"""What a run loses when it is killed, or when its files are damaged, beside Optuna and gepa."""
