"""See engine.py."""
