"""Facts about PyTorch that rn50 needs before it is imported: packages, precisions, modes, GPUs (``Traits`` in
``rn50/frameworks.py`` says what each field means)."""

from rn50.frameworks import Traits

MACHINE_CODE = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))
"""Compute capabilities for which PyTorch's builds for CUDA 13 have machine code; for the last one they have
PTX too (PyTorch's release notes and build scripts). Builds for an older CUDA have code for other
capabilities; ``torch.cuda.get_arch_list()`` of the build tells which."""

TRAITS = Traits(
    name="PyTorch",
    package=r"torch",
    packages=r"torch(vision)?|nvidia-(dali-.*|cudnn-frontend)|numpy",
    requirements={"cpu": ("pytorch-cpu",), "gpu": ("pytorch-gpu",)},
    precisions={"cpu": ("float32", "bfloat16"), "gpu": ("float32", "float16", "bfloat16")},
    # Ways in which inference.py runs a network -> their precisions.
    inference=dict.fromkeys(("eager", "compiled"), ("float32", "bfloat16"))
    | dict.fromkeys(("cuda-eager", "cuda-compiled", "cuda-graph"), ("float32", "float16", "bfloat16")),
    open_recipe=("IMAGE_SIZES", "LOSS", "EMA_HALF_LIFE", "DECOUPLED_WD", "BLURPOOL"),
    input_libraries=("dali", "dataloader"),
    step_modes=("eager", "graph", "compile", "fused"),
    fused=((8, 0), "triton"),  # from compute capability 8.0 on STEP_MODE=fused is advised; it needs Triton
    prefixes=("TORCH_", "TORCHINDUCTOR_", "PYTORCH_"),
    meanings={
        "TORCHINDUCTOR_CACHE_DIR": "folder that keeps what STEP_MODE=compile has compiled, for later runs",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1: STEP_MODE=compile times several kernels for every operation, "
        "which takes minutes",
    },
    capabilities=MACHINE_CODE,
    cuda=13,
    ptx=MACHINE_CODE[-1],
    uses_amx=True,
    rate_with_amx=18.3,  # images/s of a training step on a Xeon with AMX
    # From compute capability 7.5 on a new configuration takes PyTorch in place of the default, MXNet.
    preferred=((7, 5), "MXNet's wheel is channels-first, by estimate slower"),
)
