"""A campaign: the runs that make one result, one after the other."""
