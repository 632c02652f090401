"""Facts about MXNet 1.9.1 that rn50 needs before it is imported: packages, precisions, GPUs, variables
(``Traits`` in ``rn50/frameworks.py`` says what each field means).

``variables.csv`` lists the environment variables that the released MXNet reads. They are the names that
``libmxnet.so`` and the Python files of the packages ``mxnet`` and ``mxnet-cu112`` 1.9.1 contain. Other names
in published configurations are for NVIDIA's own build of MXNet, and have no effect here.
"""

from rn50 import files
from rn50.frameworks import Traits, Variables

PREFIX = "MXNET_"

_ROWS = files.table_beside(__file__, "variables.csv")
# A row of the table is (name of a variable, the part of MXNet that reads it, meaning).
LIBRARY, CUDA, PYTHON = (
    frozenset(name for name, where, _ in _ROWS if where == place)
    for place in ("library", "CUDA library", "Python")
)
"""Names of variables that every build reads, that only the build for CUDA reads, and that the Python package
reads."""
READ = LIBRARY | CUDA | PYTHON

MACHINE_CODE = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))
"""Compute capabilities for which libmxnet.so of mxnet-cu112 1.9.1 has machine code. It has no PTX, which a
driver could compile for other GPUs."""

ELSEWHERE = ("NHWC_BATCHNORM_LAUNCH_MARGIN", "E2E_CUDA_GRAPHS")
"""Names without ``PREFIX`` that published configurations set for NVIDIA's own build of MXNet."""

TRAITS = Traits(
    name="MXNet",
    package=r"mxnet(-cu\d+)?",
    packages=r"mxnet.*|nvidia-dali-.*|numpy|horovod",
    requirements={"cpu": ("mxnet-cpu",), "gpu": ("mxnet-cu112",)},
    precisions={"cpu": ("float32", "bfloat16"), "gpu": ("float32", "float16")},
    open_recipe=("IMAGE_SIZES", "LOSS", "EMA_HALF_LIFE"),
    inference={"hybridized": ("float32", "bfloat16")},
    capabilities=MACHINE_CODE,
    cuda=11,
    horovod=True,  # for ranks on GPUs or on several machines
    gradient_buckets=True,  # the all-reduce of the gradients may be divided into several
    variables=Variables(PREFIX, READ, ELSEWHERE),
    library=("mxnet", "libmxnet.so"),
    prefixes=(PREFIX,),
    meanings={name: meaning for name, _, meaning in _ROWS if meaning},
    # On a processor without these flags MXNet's oneDNN 2.4 refuses bfloat16.
    bfloat16_flags=frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl")),
    rate_with_amx=7.27,  # images/s of a training step in bfloat16 on a Xeon with AMX (docs/measurements.md)
    container="NVIDIA_MXNET_VERSION",  # set in NVIDIA's container
    # Let the profiler count every operator separately: by default MXNet runs several operators as one.
    profiling={"MXNET_EXEC_BULK_EXEC_TRAIN": "0"},
    is_default=True,
    gpu_package=r"mxnet-cu\d+",
)
