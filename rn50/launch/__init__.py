"""The processes of a run: launchers, hosts, and the ranks of one machine."""
