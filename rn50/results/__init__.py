"""Read, score, compare and report result logs; the table of published results."""
