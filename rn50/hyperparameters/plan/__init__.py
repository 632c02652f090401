"""``rn50 plan``: epochs and minutes to expect of a system."""
