"""The timed run: what a framework has to offer, clock, log, evaluation, watchdog."""
