"""Weights of a network: their file, what is counted of their predictions, and its page."""
