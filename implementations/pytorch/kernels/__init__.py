"""Kernels of our own, in Triton, for STEP_MODE=fused."""
