"""The processes of a run: launchers, hosts, the ranks of one machine."""
