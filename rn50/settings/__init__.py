"""Settings of a run: environment variables and configuration files read, shown and rewritten."""
