"""``rn50 config new``: a complete configuration for this machine."""
