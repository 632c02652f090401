"""Variables passed unchanged to libraries and launchers: who reads them, and what some of them mean."""

import re

from rn50 import frameworks

_OF_FILES = re.compile("DIR|FILE|LIBRARY|PATH|PLUGIN|TIMELINE")
READERS: dict[str, str] = {
    **{prefix: traits.name for traits in frameworks.every().values() for prefix in traits.prefixes},
    "NCCL_": "NCCL",
    "HOROVOD_": "Horovod",
    "OMPI_": "Open MPI",
    "PMIX_": "PMIx",
    "UCX_": "UCX",
    "SHARP_": "SHARP",
    "GLOO_": "Gloo",
    "CUDA_": "CUDA",
    "CUDNN_": "cuDNN",
    "NVIDIA_": "NVIDIA's libraries and containers",
    "OMP_": "OpenMP",
    "KMP_": "OpenMP of LLVM and Intel",
    "GOMP_": "OpenMP of GNU",
    "MKL_": "oneMKL",
    "MKLDNN_": "oneDNN",
    "DNNL_": "oneDNN",
    "ONEDNN_": "oneDNN",
    "LD_": "the dynamic loader",
    "SBATCH_": "Slurm",
}
"""First part of the names of a library's variables -> the library."""

PASSED_THROUGH = tuple(READERS)
"""First parts of the names of all variables that are passed through."""

MEANINGS: dict[str, str] = {
    **{name: meaning for traits in frameworks.every().values() for name, meaning in traits.meanings.items()},
    "HOROVOD_CACHE_CAPACITY": "gradients whose agreement between the ranks is remembered; 0 turns that off",
    "HOROVOD_CYCLE_TIME": "milliseconds from one round of sums over the ranks to the next",
    "HOROVOD_FUSION_THRESHOLD": "most bytes of gradients that are summed over the ranks at once",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "1: sums are taken within each machine first, then between the "
    "machines",
    "HOROVOD_LOG_LEVEL": "how much Horovod writes about itself: trace, debug, info, warning, error or fatal",
    "HOROVOD_NUM_NCCL_STREAMS": "CUDA streams for sums over the ranks, which can overlap on several",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "seconds after which a rank that others wait for is named",
    "HOROVOD_TIMELINE": "file that a timeline of the sums over the ranks is written to",
    "NCCL_ALGO": "algorithms that NCCL may choose from, such as Ring,Tree",
    "NCCL_BUFFSIZE": "bytes of the buffer between two GPUs",
    "NCCL_COLLNET_ENABLE": "1: network switches may compute the sums, by a plugin such as SHARP",
    "NCCL_DEBUG": "how much NCCL writes about itself: VERSION, WARN, INFO or TRACE",
    "NCCL_IB_DISABLE": "1: nothing goes over InfiniBand or RoCE",
    "NCCL_IB_HCA": "InfiniBand adapters that NCCL may use",
    "NCCL_MAX_NCHANNELS": "most channels, each a block of GPU threads, that a sum uses",
    "NCCL_MIN_NCHANNELS": "fewest channels, each a block of GPU threads, that a sum uses",
    "NCCL_NET_GDR_LEVEL": "how far a network adapter may be from a GPU that it reads from directly",
    "NCCL_NTHREADS": "GPU threads of a channel",
    "NCCL_P2P_DISABLE": "1: GPUs do not read each other's memory directly",
    "NCCL_PROTO": "protocols that NCCL may choose from: LL, LL128, Simple",
    "NCCL_SHM_DISABLE": "1: nothing goes through shared memory",
    "NCCL_SOCKET_IFNAME": "network interfaces over which the ranks find each other, and talk where there is "
    "no InfiniBand",
    "OMP_NUM_THREADS": "OpenMP's threads of a rank, by level of nesting",
    "KMP_AFFINITY": "how OpenMP's threads are bound to cores",
    "OMP_PROC_BIND": "whether OpenMP's threads stay on their cores",
    "CUDA_DEVICE_MAX_CONNECTIONS": "hardware queues between CPU and GPU, 1 to 32; unset: 32, so that "
    "no stream of the input waits for a training step",
    "CUDA_LAUNCH_BLOCKING": "1: the CPU waits for every kernel; for finding faults, slow",
    "CUDA_VISIBLE_DEVICES": "GPUs that a process can see",
    "LD_LIBRARY_PATH": "folders in which shared libraries are looked for first",
    "LD_PRELOAD": "libraries that are loaded before all others",
}
"""Variable that published configurations often set -> its meaning."""

HARMLESS = frozenset(name for name in MEANINGS if not name.startswith("LD_") and not _OF_FILES.search(name))
"""Variables that may be taken from somebody's result: they neither load code nor name a file."""


def reader(name: str) -> str:
    """Return the library that reads a variable that is passed through."""
    return next(library for prefix, library in READERS.items() if name.startswith(prefix))
