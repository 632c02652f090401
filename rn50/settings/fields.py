"""The variables of a configuration, each defined once, as the dataclass field that it fills.

The type of a field says how its text is read, unless a parser is given. Variables that decide convergence
have no default, so that nobody trains with an unseen hyperparameter. The other defaults are those of the
launchers of the published MXNet submissions (rounds v0.7 to v2.1).
"""

import dataclasses
import math
from collections.abc import Iterator

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.settings import parsers
from rn50.settings.bounds import EPOCHS, MACHINE, SEED, Range
from rn50.settings.parsers import one_of
from rn50.settings.variables import UNNAMED, UNNAMED_ORGANISATION, Variable, env, variable_of


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """Variables that decide convergence. They are borrowed and checked as one group."""

    optimizer: str = env(
        "OPTIMIZER",
        "lars, in any published spelling, or sgd with momentum",
        example="lars",
        parse=parsers.optimizer,
    )
    batch_size: int = env(
        "BATCHSIZE", "images per step on each rank", bound=Range(1, 1_000_000), example="408"
    )
    learning_rate: float = env(
        "LR",
        "highest learning rate, at the end of the warm-up",
        bound=Range(0, 1_000_000, above=True),
        example="10.5",
    )
    warmup_epochs: float = env(
        "WARMUP_EPOCHS",
        "epochs in which the learning rate rises from 0",
        bound=Range(0, 10_000),
        example="2",
        parse=parsers.epochs,
    )
    num_epochs: int = env(
        "NUMEPOCHS",
        "epochs that are trained at most; without DECAY_EPOCHS the learning rate decays over as many",
        bound=EPOCHS,
        example="37",
    )
    momentum: float = env("MOM", "momentum of the optimizer", bound=Range(0, 1, below=True), example="0.9")
    weight_decay: float = env(
        "WD", "weight decay; batch norm and biases have none", bound=Range(0, 1), example="5e-5"
    )
    lars_eta: float | None = env(
        "LARSETA",
        "trust coefficient of LARS, a factor of every layer's learning rate",
        bound=Range(0, 1, above=True),
        example="0.001",
        only_with={"OPTIMIZER": "lars"},
    )
    label_smoothing: float = env(
        "LABELSMOOTHING",
        "part e of the label that is spread over all classes: the target is (1 - e) * onehot + e / classes",
        bound=Range(0, 1, below=True),
        example="0.1",
    )
    eval_offset: int = env(
        "EVAL_OFFSET", "epochs before the first one that is evaluated", bound=Range(0, 10_000), example="2"
    )
    eval_period: int = env("EVAL_PERIOD", "epochs from one evaluation to the next", bound=EPOCHS, example="4")
    decay_epochs: float | None = env(
        "DECAY_EPOCHS",
        "epochs after which the learning rate has decayed, if not NUMEPOCHS",
        None,
        Range(0, 10_000, above=True),
        example="33",
        parse=parsers.epochs,
    )
    bn_gamma_zero: bool = env(
        "BN_GAMMA_ZERO", "1: the last batch norm of every residual block starts with gamma 0", False
    )

    @property
    def schedule_epochs(self) -> float:
        """Number of epochs after which the learning rate has decayed."""
        return self.num_epochs if self.decay_epochs is None else self.decay_epochs


@dataclasses.dataclass(frozen=True)
class Run:
    """Machines, implementation, launcher and log entries of a run."""

    # No defaults: the number of ranks decides the global batch size.
    ranks_per_node: int = env(
        "DGXNGPU",
        "ranks on each machine: one per GPU, or processes that share the CPU",
        bound=MACHINE,
        example="8",
        aliases=("PGNGPU", "NFNGPU", "NGPU"),
    )
    nodes: int = env(
        "DGXNNODES",
        "machines of a run",
        bound=Range(1, 65_536),
        example="1",
        aliases=("PGNNODES", "NFNNODES", "NNODES"),
    )
    system: str = env(
        "DGXSYSTEM",
        "name of the system, and of its file configs/config_NAME.sh",
        UNNAMED,
        aliases=("PGSYSTEM", "NFSYSTEM"),
    )
    framework: str = env(
        "FRAMEWORK",
        "what trains: a folder of implementations/",
        frameworks.default(),
        parse=parsers.framework,
    )
    device: str = env("DEVICE", "what computes: gpu or cpu", "gpu", parse=one_of("gpu", "cpu"))
    precision: str = env(
        "PRECISION",
        "numbers of the forward and backward pass; auto: float16 on a GPU, on a CPU float32 or bfloat16, "
        "whose steps are timed at warm-up",
        "auto",
        parse=one_of("auto", "float32", "float16", "bfloat16"),
    )
    step_mode: str = env(
        "STEP_MODE",
        "how a step runs: eager, operation by operation; graph, as a CUDA graph; compile, by the "
        "framework's compiler; fused, with our kernels for batch norm; on a GPU the last two are a "
        "CUDA graph as well",
        "eager",
        parse=one_of(*frameworks.values("step_modes")),
    )
    seed: int | None = env(
        "SEED",
        "seed of all random numbers of a run; by default the operating system draws one",
        None,
        SEED,
        example="1",
    )
    organisation: str = env("SUBMISSION_ORG", "who submits, in the log", UNNAMED_ORGANISATION)
    division: str = env(
        "SUBMISSION_DIVISION",
        "division of MLPerf, in the log: closed or open",
        "closed",
        parse=one_of("closed", "open"),
    )
    status: str = env(
        "SUBMISSION_STATUS",
        "availability of the system, in the log: onprem, cloud, research or preview",
        "onprem",
        parse=one_of("onprem", "cloud", "research", "preview"),
    )
    platform: str = env("SUBMISSION_PLATFORM", "what the system is called in the log", "unnamed platform")
    result_file: str | None = env(
        "RESULT_FILE", "file that the log is written to", None, example="result_0.txt", parse=parsers.path
    )
    cache_cleared: bool = env(
        "CACHE_CLEARED", "1: somebody has dropped the system's file caches before this run", False
    )
    launcher: str = env(
        "LAUNCHER",
        "what starts the ranks; auto takes srun in a Slurm step of several tasks, python where no Horovod is "
        "needed on one machine, else mpirun or horovodrun; others are a framework's own",
        "auto",
        parse=one_of("auto", "python", "horovodrun", "mpirun", "srun", *frameworks.values("launchers")),
    )
    hosts: str | None = env(
        "HOSTS",
        "machines of a run over several, with their ranks, the first has rank 0; Slurm needs no list",
        None,
        example="host1:8,host2:8",
    )
    gradient_groups: int = env(
        "MXNET_HOROVOD_NUM_GROUPS",
        "sums over the ranks in which a step's gradients are taken; of several the first begin before "
        "backpropagation ends",
        1,
        Range(1, 1_024),
    )
    benchmark_steps: int | None = env(
        "BENCHMARK_STEPS",
        "steps of an epoch after which it is cut short, to measure speed",
        None,
        Range(1, 100_000_000),
        example="100",
    )
    target: str = env(
        "TARGET",
        "top-1 at which a run stops, a fraction; none: it trains all of NUMEPOCHS, and evaluates after the "
        "last; any but the default is no MLPerf result",
        str(rules.TARGET_ACCURACY),
        parse=parsers.target,
    )
    eval_top5: bool = env("EVAL_TOP5", "1: top-5 is logged too, in longer evaluations", False)
    power: str = env(
        "POWER",
        "power meter that is read beside the run: nvml (GPUs), rapl (processors), auto (both, as far as "
        "there are any), file:PATH or file:PATH,SECONDS (a CSV of time and watts of a meter, and by how much "
        "its clock is ahead), off",
        "off",
        parse=parsers.power,
    )
    save_weights: str = env(
        "SAVE_WEIGHTS",
        "last or 1: the weights that a run ends with are saved beside the log once the clock has stopped; "
        "best: those of its best evaluation",
        "0",
        parse=parsers.one_of("0", "1", "last", "best"),
    )
    initial_weights: str | None = env(
        "INITIAL_WEIGHTS",
        "file of saved weights that a run begins with; such a run is no MLPerf result",
        None,
        example="result_0.safetensors",
        parse=parsers.path,
    )
    sparsity: str = env(
        "SPARSITY",
        "2:4: of every four input channels of INITIAL_WEIGHTS the two of the smaller magnitude are 0, and "
        "stay so",
        "none",
        parse=one_of("none", "2:4"),
    )
    quantization: str = env(
        "QUANTIZATION",
        "int8: INITIAL_WEIGHTS are trained on with the weights and inputs of every layer rounded as in "
        "int8, for rn50 export and rn50 quantize",
        "none",
        parse=one_of("none", "int8"),
    )
    checkpoint_epochs: int = env(
        "CHECKPOINT_EPOCHS",
        "epochs after which a state to resume from is saved beside the log, while the clock runs; the input "
        "pipeline starts anew then; 0 saves none",
        0,
        Range(0, 10_000),
    )
    resume: bool = env(
        "RESUME",
        "1: go on from the checkpoint beside the log, if there is one; such a run is no MLPerf result",
        False,
    )

    @property
    def target_accuracy(self) -> float:
        """``target`` as a number; infinite for none."""
        return math.inf if self.target == "none" else float(self.target)


RUNS_OWN = ("seed", "result_file", "cache_cleared", "hosts", "save_weights", "resume", "power")
"""Fields of ``Run`` that may differ between the runs of one configuration."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Data set, and the width of the network that fits it. The defaults are for ImageNet."""

    folder: str = env(
        "DATADIR", "folder of train.rec, train.idx, val.rec and val.idx", "/data", parse=parsers.path
    )
    train_samples: int = env(
        "NUMEXAMPLES", "images of the training set", rules.TRAIN_SAMPLES, Range(1, 100_000_000)
    )
    eval_samples: int = env(
        "NUMVALEXAMPLES", "images of the validation set", rules.EVAL_SAMPLES, Range(1, 100_000_000)
    )
    classes: int = env("NUMCLASSES", "classes of the data set", rules.CLASSES, Range(2, 1_000_000))
    image_size: int = env(
        "IMAGE_SIZE", "side of the network's input, in pixels", rules.IMAGE_SIZE, Range(1, 8_192)
    )
    eval_resize: int = env(
        "EVAL_RESIZE",
        "shorter side, in pixels, to which a validation image is resized before its centre is cropped",
        rules.EVAL_RESIZE,
        Range(1, 8_192),
    )
    crop_area_min: float = env(
        "CROP_AREA_MIN",
        "smallest part of an image's area that a training crop takes, from 0 to 1",
        rules.CROP_AREA[0],
        Range(0, 1, above=True),
    )
    width: float = env(
        "WIDTH",
        "factor of the network's channels; 1 is ResNet-50, below 0.01 a stage has no channel",
        1.0,
        Range(0.01, 16),
    )


@dataclasses.dataclass(frozen=True)
class InputPipeline:
    """Variables of the input pipeline. They affect speed only."""

    library: str = env(
        "INPUT_LIBRARY",
        "what reads and decodes images; auto: dali if it is installed, else another library of the framework",
        "auto",
        parse=one_of("auto", *frameworks.values("input_libraries")),
    )
    threads: int = env(
        "DALI_THREADS",
        "CPU threads of each rank that decode and augment images; 0: one less than the cores of a rank",
        3,
        Range(0, 1_024),
    )
    prefetch_queue_depth: int = env(
        "DALI_PREFETCH_QUEUE", "batches that are prepared ahead", 2, Range(1, 1_024)
    )
    hw_decoder_load: float = env(
        "DALI_HW_DECODER_LOAD",
        "share of the images, from 0 to 1, that the GPU's JPEG engine decodes",
        0.0,
        Range(0, 1),
    )
    roi_decode: bool = env("DALI_ROI_DECODE", "1: only the random crop of a training image is decoded", False)
    cache_size_mb: int = env(
        "DALI_CACHE_SIZE", "GPU memory in MiB that keeps decoded images; 0 keeps none", 0, Range(0, 1 << 20)
    )
    nvjpeg_padding_mb: int = env(
        "DALI_NVJPEG_MEMPADDING",
        "host and GPU memory in MiB that nvJPEG gets in advance",
        64,
        Range(0, 1 << 20),
    )
    preallocate_width: int = env(
        "DALI_PREALLOCATE_WIDTH",
        "largest image width, in pixels, that the JPEG engine prepares for",
        0,
        Range(0, 65_535),
    )
    preallocate_height: int = env(
        "DALI_PREALLOCATE_HEIGHT",
        "largest image height, in pixels, that the JPEG engine prepares for",
        0,
        Range(0, 65_535),
    )
    decoder_buffer_hint: int = env(
        "DALI_DECODER_BUFFER_HINT", "expected size of a decoded image, in bytes", 1315942, Range(0, 2**31 - 1)
    )
    crop_buffer_hint: int = env(
        "DALI_CROP_BUFFER_HINT", "expected size of a resized crop, in bytes", 165581, Range(0, 2**31 - 1)
    )
    normalize_buffer_hint: int = env(
        "DALI_NORMALIZE_BUFFER_HINT",
        "expected size of a normalised image, in bytes",
        441549,
        Range(0, 2**31 - 1),
    )
    tmp_buffer_hint: int = env(
        "DALI_TMP_BUFFER_HINT",
        "expected size of the memory for resizing an image, in bytes",
        25273239,
        Range(0, 2**31 - 1),
    )
    dont_use_mmap: bool = env(
        "DALI_DONT_USE_MMAP", "1: records are read with read() instead of mapping the file into memory", False
    )


SECTIONS = {"hyperparameters": Hyperparameters, "run": Run, "data": Data, "input_pipeline": InputPipeline}


def variables() -> Iterator[tuple[str, str, Variable]]:
    """Yield (section, field, variable) of every variable, in the order of the configuration files."""
    for section, type_ in SECTIONS.items():
        for field in dataclasses.fields(type_):
            yield section, field.name, variable_of(field)


VARIABLES = {variable.name: variable for _, _, variable in variables()}
RUNS_OWN_NAMES = frozenset(variable.name for _, field, variable in variables() if field in RUNS_OWN)
"""Names of the variables that may differ between the runs of one configuration."""
