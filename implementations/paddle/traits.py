"""Facts about PaddlePaddle 2.6.2 that rn50 needs before it is imported: packages, precisions, GPUs, variables
(``Traits`` in ``rn50/frameworks.py`` says what each field means)."""

from rn50.frameworks import Traits

MACHINE_CODE = ((6, 1), (7, 0), (7, 5), (8, 0), (8, 6))
"""Compute capabilities for which paddlepaddle-gpu 2.6.2 has machine code. It has no PTX, which a driver could
compile for other GPUs."""

TRAITS = Traits(
    name="Paddle",
    package=r"paddlepaddle(-gpu)?",
    gpu_package=r"paddlepaddle-gpu",
    packages=r"paddlepaddle.*|nvidia-dali-.*|numpy",
    requirements={"cpu": ("paddle-cpu",), "gpu": ("paddle-gpu",)},
    # No bfloat16 on a CPU: PaddlePaddle accepts it there with a warning, and computes in float32.
    precisions={"cpu": ("float32",), "gpu": ("float32", "float16", "bfloat16")},
    input_libraries=("dali", "dataloader"),
    open_recipe=("IMAGE_SIZES", "LOSS", "EMA_HALF_LIFE"),
    inference={"native": ("float32",), "onednn": ("float32", "bfloat16")},
    capabilities=MACHINE_CODE,
    cuda=11,
    least_capabilities={"float16": (7, 0), "bfloat16": (8, 0)},  # as in its paddle/amp/auto_cast.py
    prefixes=("FLAGS_", "PADDLE_"),  # variables that begin so are passed through to Paddle
    of_one_rank="PADDLE_|FLAGS_selected_",  # variables that launchers set for each rank begin so
    meanings={"FLAGS_paddle_num_threads": "threads of the matrix products of a rank on a CPU"},
)
