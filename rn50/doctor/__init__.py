"""``rn50 doctor``: find out what this machine can run, and the command that fixes the rest."""
