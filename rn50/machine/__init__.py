"""The machine: cores, GPUs, limits, installed software, and the binding of ranks to cores."""
