"""Hyperparameters: planned for a system, borrowed from published results, searched."""
