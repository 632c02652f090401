"""The configuration of a run, read once from the environment into frozen dataclasses.

This is the only file of the project that reads ``os.environ`` for a run.
"""

import dataclasses
from typing import Dict, Optional, Tuple


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What decides convergence; borrowed and checked as one group."""

    optimizer: str                # OPTIMIZER: "lars" (published spellings such as sgdwfastlars mean the same)
    batch_size: int               # BATCHSIZE: images per rank and step
    learning_rate: float          # LR: the base (peak) learning rate
    warmup_epochs: int            # WARMUP_EPOCHS
    num_epochs: int               # NUMEPOCHS: length of the schedule, and the last epoch that is trained
    momentum: float               # MOM
    weight_decay: float           # WD
    lars_eta: float               # LARSETA
    label_smoothing: float        # LABELSMOOTHING
    eval_offset: int              # EVAL_OFFSET
    eval_period: int              # EVAL_PERIOD
    bn_gamma_zero: bool           # BN_GAMMA_ZERO: last batch norm gamma of every block starts at 0


@dataclasses.dataclass(frozen=True)
class Run:
    """Where and as what it runs."""

    system: str                   # DGXSYSTEM
    framework: str                # FRAMEWORK: "mxnet"
    device: str                   # DEVICE: "gpu" | "cpu"
    precision: str                # PRECISION: "auto" | "float32" | "float16" | "bfloat16"
    ranks_per_node: int           # DGXNGPU
    nodes: int                    # DGXNNODES
    sockets: Optional[int]        # DGXNSOCKET
    cores_per_socket: Optional[int]  # DGXSOCKETCORES
    hyperthreads: Optional[int]   # DGXHT
    walltime: Optional[str]       # WALLTIME
    seed: Optional[int]           # SEED; None: taken from the operating system
    organisation: str             # SUBMISSION_ORG
    division: str                 # SUBMISSION_DIVISION
    status: str                   # SUBMISSION_STATUS
    platform: str                 # SUBMISSION_PLATFORM


@dataclasses.dataclass(frozen=True)
class Data:
    """What it is trained on, and the width of the network that fits it."""

    folder: str                   # DATADIR: holds train.rec, train.idx, val.rec, val.idx
    train_samples: int            # NUMEXAMPLES
    eval_samples: int             # NUMVALEXAMPLES
    classes: int                  # NUMCLASSES
    image_size: int               # IMAGE_SIZE
    eval_resize: int              # EVAL_RESIZE
    crop_area_min: float          # CROP_AREA_MIN
    width: float                  # WIDTH: multiplies every channel count; 1 is ResNet-50


@dataclasses.dataclass(frozen=True)
class InputPipeline:
    """What decides speed only."""

    threads: int                  # DALI_THREADS
    prefetch_queue_depth: int     # DALI_PREFETCH_QUEUE
    hw_decoder_load: float        # DALI_HW_DECODER_LOAD
    roi_decode: bool              # DALI_ROI_DECODE
    cache_size_mb: int            # DALI_CACHE_SIZE
    nvjpeg_padding_mb: int        # DALI_NVJPEG_MEMPADDING (MiB of host and device memory)
    preallocate_width: int        # DALI_PREALLOCATE_WIDTH
    preallocate_height: int       # DALI_PREALLOCATE_HEIGHT
    decoder_buffer_hint: int      # DALI_DECODER_BUFFER_HINT
    crop_buffer_hint: int         # DALI_CROP_BUFFER_HINT
    normalize_buffer_hint: int    # DALI_NORMALIZE_BUFFER_HINT
    tmp_buffer_hint: int          # DALI_TMP_BUFFER_HINT
    dont_use_mmap: bool           # DALI_DONT_USE_MMAP
    input_batch_multiplier: int   # INPUT_BATCH_MULTIPLIER


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run. The fifth section of a file, the environment, is passed through untouched."""

    hyperparameters: Hyperparameters
    run: Run
    data: Data
    input_pipeline: InputPipeline
