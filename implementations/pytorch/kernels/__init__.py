"""Triton kernels for STEP_MODE=fused. ``fused_norm.py`` starts them, and ``tile.py`` has what they share."""
