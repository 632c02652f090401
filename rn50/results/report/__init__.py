"""The page of ``rn50 report``."""
