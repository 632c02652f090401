"""Ask of a set of runs whether it was selected, copied or edited, from what its logs say."""
