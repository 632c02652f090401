"""A search for hyperparameters that reach the target in fewer epochs: its method, its trials, its journal,
its confirmation."""
