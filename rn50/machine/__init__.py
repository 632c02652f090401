"""The machine: cores, GPUs, limits, installed software, and the cores of a rank."""
