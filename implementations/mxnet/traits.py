"""MXNet 1.9.1, described without importing it.

Source of the variables that the released MXNet reads: the names in ``libmxnet.so`` and the Python files of
the packages ``mxnet`` and ``mxnet-cu112`` 1.9.1. Other names in published files are for NVIDIA's own build
and have no effect.
"""

from rn50.frameworks import Traits, Variables

PREFIX = "MXNET_"

_LIBRARY = """
    BACKWARD_DO_MIRROR CPU_PARALLEL_RAND_COPY CPU_PARALLEL_SIZE CPU_PRIORITY_NTHREADS CPU_TEMP_COPY
    CPU_WORKER_NTHREADS CUDA_ALLOW_TENSOR_CORE CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION CUDNN_AUTOTUNE_DEFAULT
    DISABLE_MKLDNN_CONV_OPT DISABLE_MKLDNN_FC_OPT DISABLE_MKLDNN_FUSE_CONV_BN DISABLE_MKLDNN_FUSE_CONV_RELU
    DISABLE_MKLDNN_FUSE_CONV_SUM DISABLE_MKLDNN_FUSE_FC_ELTWISE DISABLE_MKLDNN_QEM_FLOAT_OUTPUT
    DISABLE_MKLDNN_QEM_FUSE_ALL DISABLE_MKLDNN_QFC_FLOAT_OUTPUT DISABLE_MKLDNN_QFC_FUSE_ALL
    DISABLE_MKLDNN_QTRANSFORMER_FLOAT_OUTPUT DISABLE_MKLDNN_QTRANSFORMER_FUSE_ALL
    DISABLE_MKLDNN_TRANSFORMER_OPT ELIMINATE_COMMON_EXPR ENABLE_GPU_P2P ENGINE_INFO ENGINE_TYPE
    EXEC_BULK_EXEC_INFERENCE EXEC_BULK_EXEC_MAX_NODE_TRAIN EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD
    EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD EXEC_BULK_EXEC_TRAIN EXEC_INPLACE_GRAD_SUM_CAP EXEC_VERBOSE_LOGGING
    GPU_COPY_NTHREADS GPU_PARALLEL_RAND_COPY GPU_TEMP_COPY GPU_WORKER_NTHREADS
    INFER_STORAGE_TYPE_VERBOSE_LOGGING KVSTORE_BIGARRAY_BOUND KVSTORE_DIST_ROW_SPARSE_VERBOSE KVSTORE_LOGTREE
    KVSTORE_REDUCTION_NTHREADS KVSTORE_SERIAL_PUSH KVSTORE_SLICE_THRESHOLD KVSTORE_USETREE
    MEM_PLAN_VERBOSE_LOGGING MKLDNN_CACHE_NUM MKLDNN_DEBUG MKLDNN_ENABLED MKLDNN_FORCE_FC_AB_FORMAT
    MKLDNN_QFC_DYNAMIC_PARAMS MP_OPENCV_NUM_THREADS MP_WORKER_NTHREADS OMP_MAX_THREADS OUTPUT_TUNING_DATA
    PROFILER_AUTOSTART PROFILER_MODE QUANTIZATION_VERBOSE RNN_USE_WEIGHT_CACHE SAFE_ACCUMULATION
    STORAGE_FALLBACK_LOG_VERBOSE SUBGRAPH_BACKEND SUBGRAPH_VERBOSE TUNING_WEIGHT_SCALE UPDATE_ON_KVSTORE
    USE_FUSION USE_MKLDNN_RNN USE_NUM_CORES_OPERATOR_TUNING USE_OPERATOR_TUNING VERBOSE_TUNING_INFO
"""
_CUDA = """
    CUDA_GRAPHS_MAX_LOG_ENTRIES CUDA_GRAPHS_VERBOSE CUDA_LIB_CHECKING CUDNN_LIB_CHECKING ENABLE_CUDA_GRAPHS
    ENFORCE_DETERMINISM FC_TRUE_FP16 FUSION_SIZE_WARNING FUSION_VERBOSE GPU_CUDNN_DROPOUT_STATE_COPY
    GPU_MEM_LARGE_ALLOC_ROUND_SIZE GPU_MEM_POOL_PAGE_SIZE GPU_MEM_POOL_RESERVE
    GPU_MEM_POOL_ROUND_LINEAR_CUTOFF GPU_MEM_POOL_TYPE GPU_WORKER_NSTREAMS KVSTORE_TREE_ARRAY_BOUND
    KVSTORE_TREE_BACKTRACK KVSTORE_TREE_LINK_USAGE_PENALTY RTC_VERBOSE
"""
_PYTHON = """
    ENABLE_CYTHON ENFORCE_CYTHON GLUON_REPO HOME INCLUDE_PATH LIBRARY_PATH OPTIMIZER_AGGREGATION_SIZE
    UPDATE_AGGREGATION_SIZE
"""


def _named(names: str) -> frozenset[str]:
    return frozenset(PREFIX + name for name in names.split())


LIBRARY, CUDA, PYTHON = map(_named, (_LIBRARY, _CUDA, _PYTHON))
"""Names in every build, in the CUDA build alone, and in the Python package."""
READ = LIBRARY | CUDA | PYTHON

MACHINE_CODE = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))
"""Compute capabilities for which libmxnet.so of mxnet-cu112 1.9.1 has code; it has no PTX to compile for
others."""

ELSEWHERE = ("NHWC_BATCHNORM_LAUNCH_MARGIN", "E2E_CUDA_GRAPHS")
"""Names that published files set for NVIDIA's own build, beside those that begin with ``PREFIX``."""

TRAITS = Traits(
    name="MXNet",
    package=r"mxnet(-cu\d+)?",
    packages=r"mxnet.*|nvidia-dali-.*|numpy|horovod",
    requirements={"cpu": ("mxnet-cpu",), "gpu": ("mxnet-cu112",)},
    precisions={"cpu": ("float32", "bfloat16"), "gpu": ("float32", "float16")},
    inference={"hybridized": ("float32", "bfloat16")},
    capabilities=MACHINE_CODE,
    cuda=11,
    horovod=True,
    gradient_buckets=True,
    variables=Variables(PREFIX, READ, ELSEWHERE),
    library=("mxnet", "libmxnet.so"),
    prefixes=(PREFIX,),
    meanings={
        "MXNET_CPU_WORKER_NTHREADS": "threads that run operators on the CPU",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT": "0: cuDNN's usual convolutions; 1: the fastest within a limit of "
        "memory; 2: the fastest",
        "MXNET_ENABLE_CUDA_GRAPHS": "1: operators are replayed as CUDA graphs",
        "MXNET_ENFORCE_DETERMINISM": "1: only algorithms that give the same result each time",
        "MXNET_ENGINE_TYPE": "what schedules operators: ThreadedEnginePerDevice, ThreadedEngine, or "
        "NaiveEngine in turn",
        "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "operators of the backward pass that are launched as "
        "one piece",
        "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD": "operators of the forward pass that are launched as "
        "one piece",
        "MXNET_EXEC_BULK_EXEC_TRAIN": "0: training launches every operator on its own",
        "MXNET_GPU_WORKER_NTHREADS": "threads that launch operators on each GPU",
        "MXNET_OPTIMIZER_AGGREGATION_SIZE": "weights that one call of the optimizer updates",
        "MXNET_SAFE_ACCUMULATION": "1: sums of float16 are taken in float32",
        "MXNET_USE_FUSION": "1: neighbouring elementwise operators become one GPU kernel, compiled at "
        "run time",
    },
    # MXNet's oneDNN 2.4 refuses bfloat16 on other processors.
    bfloat16_flags=frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl")),
    rate_with_amx=7.27,
    container="NVIDIA_MXNET_VERSION",
    profiling={
        "MXNET_EXEC_BULK_EXEC_TRAIN": "0"
    },  # else the engine runs, and the profiler counts, several operators as one
    is_default=True,
    gpu_package=r"mxnet-cu\d+",
)
