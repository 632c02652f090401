"""Result logs: read, scored, compared, reported; published results."""
