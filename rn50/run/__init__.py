"""The timed run: the contract with a framework, clock, log, evaluation, watchdog."""
