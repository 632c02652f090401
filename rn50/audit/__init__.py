"""``rn50 audit``: test whether the runs of a result were selected, copied or edited, by their logs alone."""
