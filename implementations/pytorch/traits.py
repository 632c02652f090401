"""PyTorch, described without importing it."""

from rn50.frameworks import Traits

TRAITS = Traits(
    name="PyTorch",
    package=r"torch",
    packages=r"torch(vision)?|nvidia-dali-.*|numpy",
    requirements={"cpu": ("pytorch-cpu",), "gpu": ("pytorch-gpu",)},
    precisions={"cpu": ("float32", "bfloat16"), "gpu": ("float32", "float16", "bfloat16")},
    input_libraries=("dali", "dataloader", "torchvision"),
    step_modes=("eager", "graph", "compile", "fused"),
    prefixes=("TORCH_", "PYTORCH_"),
)
