"""``rn50 plan``: expected epochs and minutes of a system."""
