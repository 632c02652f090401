"""The generated data set of ``rn50 demo-data``."""
