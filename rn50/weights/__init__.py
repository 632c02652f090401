"""Weights of a network: their file, the counts of an evaluation of their predictions, and its page."""
