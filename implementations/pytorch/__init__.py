"""The PyTorch implementation, for GPUs that MXNet 1.9.1 cannot use, and for any CPU."""
