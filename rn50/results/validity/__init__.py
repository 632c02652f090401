"""Check a result by our own rules and by the official compliance checker, and report ``Finding`` records."""
