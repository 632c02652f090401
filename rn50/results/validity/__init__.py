"""Check a result against its rules, ours and those of the official compliance checker, and report
findings."""
