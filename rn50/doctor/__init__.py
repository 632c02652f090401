"""``rn50 doctor``: what this machine can run, and the command that fixes what it cannot."""
