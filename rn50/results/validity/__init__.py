"""Rules that a result has to keep, ours and those of the official compliance checker, and findings where it does not."""
