"""``rn50 reproduce``: repeat a result on this machine. ``reproduction.py`` has the steps: the claim of the
result, the configuration here, the expectation, a minute's measurement, the runs and the verdict."""
