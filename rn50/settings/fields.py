"""The variables of a configuration, each defined once, as the dataclass field that it fills.

``env`` names the variable of a field, its default and its range. The type of the field chooses the parser of
the text, unless ``env`` has ``parse``. The docstring below the field is the meaning of the variable, which
the documentation, ``rn50 config show`` and error messages print. Variables that decide convergence have no
default, so that nobody trains with a hyperparameter that the file does not show. The other defaults are those
of the launchers of the published MXNet submissions (rounds v0.7 to v2.1).
"""

import dataclasses
import math
from collections.abc import Iterator

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.errors import did_you_mean
from rn50.settings import parsers
from rn50.settings.libraries import PASSED_THROUGH
from rn50.settings.parsers import EPOCHS, MACHINE, SEED, Range, one_of, path
from rn50.settings.variables import FIXED, UNNAMED, UNNAMED_ORGANISATION, UNUSED, Variable, env, variable_of


# Range(0, 1, above=True) excludes 0, below=True excludes 1. An error shows ``example`` as a possible value.
@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """Variables that decide convergence. They are borrowed and checked as one group."""

    optimizer: str = env("OPTIMIZER", example="lars", parse=parsers.optimizer)
    """Lars, in any published spelling, or sgd with momentum."""
    batch_size: int = env("BATCHSIZE", bound=Range(1, 1_000_000), example="408")
    """Images per step on each rank."""
    learning_rate: float = env("LR", bound=Range(0, 1_000_000, above=True), example="10.5")
    """Highest learning rate, at the end of the warm-up."""
    warmup_epochs: float = env("WARMUP_EPOCHS", bound=Range(0, 10_000), example="2", parse=parsers.epochs)
    """Epochs in which the learning rate rises from 0."""
    num_epochs: int = env("NUMEPOCHS", bound=EPOCHS, example="37")
    """Epochs that are trained at most; without DECAY_EPOCHS the learning rate decays over as many."""
    momentum: float = env("MOM", bound=Range(0, 1, below=True), example="0.9")
    """Momentum of the optimizer."""
    weight_decay: float = env("WD", bound=Range(0, 1), example="5e-5")
    """Weight decay; batch norm and biases have none."""
    lars_eta: float | None = env(
        "LARSETA", bound=Range(0, 1, above=True), example="0.001", only_with={"OPTIMIZER": "lars"}
    )
    """Trust coefficient of LARS, a factor of every layer's learning rate."""
    label_smoothing: float = env("LABELSMOOTHING", bound=Range(0, 1, below=True), example="0.1")
    """Part e of the label that is spread over all classes: the target is (1 - e) * onehot + e / classes."""
    eval_offset: int = env("EVAL_OFFSET", bound=Range(0, 10_000), example="2")
    """Epochs before the first one that is evaluated."""
    eval_period: int = env("EVAL_PERIOD", bound=EPOCHS, example="4")
    """Epochs from one evaluation to the next."""
    decay_epochs: float | None = env(
        "DECAY_EPOCHS", None, Range(0, 10_000, above=True), example="33", parse=parsers.epochs
    )
    """Epochs after which the learning rate has decayed, if not NUMEPOCHS."""
    bn_gamma_zero: bool = env("BN_GAMMA_ZERO", False)
    """1: the last batch norm of every residual block starts with gamma 0."""
    # The open recipe. The closed division allows the defaults alone.
    image_sizes: str | None = env("IMAGE_SIZES", None, example="96:1,128:12", parse=parsers.image_sizes)
    """Sides of the training images by epoch, in pixels: 96:1,128:12 trains with 96 from epoch 1 on, and with
    128 from epoch 12 on; without it they are IMAGE_SIZE, which every evaluation has."""
    lr_decay: str = env("LR_DECAY", "polynomial", parse=one_of("polynomial", "cosine"))
    """Form of the learning rate's decay: polynomial, of power 2, or half a cosine."""
    decoupled_weight_decay: bool = env("DECOUPLED_WD", False)
    """1: weights decay by WD times the learning rate over LR, apart from the gradient; OPTIMIZER=sgd only."""
    loss: str = env("LOSS", "softmax", parse=one_of("softmax", "binary"))
    """Cross-entropy of a softmax over the classes, or binary: the sum of that of every class by itself."""
    blur_pool: bool = env("BLURPOOL", False)
    """1: a low-pass filter of 3x3 pixels comes before every convolution of stride 2, and in the pooling."""
    ema_half_life: float = env("EMA_HALF_LIFE", 0.0, Range(0, 1_000_000))
    """Steps in which the share of a weight in the exponential moving average halves; evaluated and saved is
    the average; 0: there is none."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Machines, implementation, launcher and log entries of a run."""

    # No defaults: the number of ranks decides the global batch size.
    ranks_per_node: int = env("DGXNGPU", bound=MACHINE, example="8", aliases=("PGNGPU", "NFNGPU", "NGPU"))
    """Ranks on each machine: one per GPU, or processes that share the CPU."""
    nodes: int = env(
        "DGXNNODES", bound=Range(1, 65_536), example="1", aliases=("PGNNODES", "NFNNODES", "NNODES")
    )
    """Machines of a run."""
    system: str = env("DGXSYSTEM", UNNAMED, aliases=("PGSYSTEM", "NFSYSTEM"))
    """Name of the system, and of its file configs/config_NAME.sh."""
    framework: str = env("FRAMEWORK", frameworks.default(), parse=parsers.framework)
    """Framework that trains: a folder of implementations/."""
    device: str = env("DEVICE", "gpu", parse=one_of("gpu", "cpu"))
    """Device that computes: gpu or cpu."""
    precision: str = env("PRECISION", "auto", parse=one_of("auto", "float32", "float16", "bfloat16"))
    """Numbers of the forward and backward pass; auto: float16 on a GPU, on a CPU float32 or bfloat16, whose
    steps are timed at warm-up."""
    step_mode: str = env("STEP_MODE", "eager", parse=one_of(*frameworks.values("step_modes")))
    """How a step runs: eager, operation by operation; graph, as a CUDA graph; compile, by the framework's
    compiler; fused, with our kernels for batch norm; on a GPU the last two are a CUDA graph as well."""
    seed: int | None = env("SEED", None, SEED, example="1")
    """Seed of all random numbers of a run; by default the operating system draws one."""
    organisation: str = env("SUBMISSION_ORG", UNNAMED_ORGANISATION)
    """Who submits, in the log."""
    division: str = env("SUBMISSION_DIVISION", "closed", parse=one_of("closed", "open"))
    """Division of MLPerf, in the log: closed or open."""
    status: str = env("SUBMISSION_STATUS", "onprem", parse=one_of("onprem", "cloud", "research", "preview"))
    """Availability of the system, in the log: onprem, cloud, research or preview."""
    platform: str = env("SUBMISSION_PLATFORM", "unnamed platform")
    """Name of the system in the log."""
    result_file: str | None = env("RESULT_FILE", None, example="result_0.txt", parse=path)
    """File that the log is written to."""
    cache_cleared: bool = env("CACHE_CLEARED", False)
    """1: somebody has dropped the system's file caches before this run."""
    launcher: str = env("LAUNCHER", "auto", parse=one_of("auto", "python", "horovodrun", "mpirun", "srun"))
    """Program that starts the ranks; auto takes srun in a Slurm step of several tasks, python where no
    Horovod is needed on one machine, else mpirun or horovodrun."""
    hosts: str | None = env("HOSTS", None, example="host1:8,host2:8")
    """Machines of a run over several, with their ranks, the first has rank 0; Slurm needs no list."""
    gradient_groups: int = env("MXNET_HOROVOD_NUM_GROUPS", 1, Range(1, 1_024))
    """Sums over the ranks in which a step's gradients are taken; of several the first begin before
    backpropagation ends."""
    benchmark_steps: int | None = env("BENCHMARK_STEPS", None, Range(1, 100_000_000), example="100")
    """Steps of an epoch after which it is cut short, to measure speed."""
    target: str = env("TARGET", str(rules.TARGET_ACCURACY), parse=parsers.target)
    """Top-1 at which a run stops, a fraction; none: it trains all of NUMEPOCHS, and evaluates after the last;
    any but the default is no MLPerf result."""
    eval_top5: bool = env("EVAL_TOP5", False)
    """1: top-5 is logged too, in longer evaluations."""
    power: str = env("POWER", "off", parse=parsers.power)
    """Power meter that is read beside the run: nvml (GPUs), rapl (processors), auto (both, as far as there
    are any), file:PATH or file:PATH,SECONDS (a CSV of time and watts of a meter, and by how much its clock is
    ahead), off."""
    save_weights: str = env("SAVE_WEIGHTS", "0", parse=one_of("0", "1", "last", "best", "first"))
    """Last or 1: the weights that a run ends with are saved beside the log once the clock has stopped; best:
    those of its best evaluation; first: as last, but of the first run of a campaign alone, result_0.txt."""
    initial_weights: str | None = env("INITIAL_WEIGHTS", None, example="result_0.safetensors", parse=path)
    """File of saved weights that a run begins with; such a run is no MLPerf result."""
    sparsity: str = env("SPARSITY", "none", parse=one_of("none", "2:4"))
    """2:4: of every four input channels of INITIAL_WEIGHTS the two of the smaller magnitude are 0, and stay
    so."""
    quantization: str = env("QUANTIZATION", "none", parse=one_of("none", "int8"))
    """Int8: INITIAL_WEIGHTS are trained on with the weights and inputs of every layer rounded as in int8, for
    rn50 export and rn50 quantize."""
    checkpoint_epochs: int = env("CHECKPOINT_EPOCHS", 0, Range(0, 10_000))
    """Epochs after which a state to resume from is saved beside the log, while the clock runs; the input
    pipeline starts anew then; 0 saves none."""
    resume: bool = env("RESUME", False)
    """1: go on from the checkpoint beside the log, if there is one; such a run is no MLPerf result."""

    @property
    def target_accuracy(self) -> float:
        """``target`` as a number; infinity, which no accuracy reaches, if it is "none"."""
        return math.inf if self.target == "none" else float(self.target)


RUNS_OWN = ("seed", "result_file", "cache_cleared", "hosts", "save_weights", "resume", "power")
"""Fields of ``Run`` that may differ between the runs of one result."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Data set, and the width of the network that fits it. The defaults are for ImageNet."""

    folder: str = env("DATADIR", "/data", parse=path)
    """Folder of train.rec, train.idx, val.rec and val.idx."""
    train_samples: int = env("NUMEXAMPLES", rules.TRAIN_SAMPLES, Range(1, 100_000_000))
    """Images of the training set."""
    eval_samples: int = env("NUMVALEXAMPLES", rules.EVAL_SAMPLES, Range(1, 100_000_000))
    """Images of the validation set."""
    classes: int = env("NUMCLASSES", rules.CLASSES, Range(2, 1_000_000))
    """Classes of the data set."""
    image_size: int = env("IMAGE_SIZE", rules.IMAGE_SIZE, Range(1, 8_192))
    """Side of the network's input, in pixels."""
    eval_resize: int = env("EVAL_RESIZE", rules.EVAL_RESIZE, Range(1, 8_192))
    """Shorter side, in pixels, to which a validation image is resized before its centre is cropped."""
    crop_area_min: float = env("CROP_AREA_MIN", rules.CROP_AREA[0], Range(0, 1, above=True))
    """Smallest part of an image's area that a training crop takes, from 0 to 1."""
    width: float = env("WIDTH", 1.0, Range(0.01, 16))
    """Factor of the network's channels; 1 is ResNet-50, below 0.01 a stage has no channel."""


@dataclasses.dataclass(frozen=True)
class InputPipeline:
    """Variables of the input pipeline. They affect speed only."""

    library: str = env("INPUT_LIBRARY", "auto", parse=one_of("auto", *frameworks.values("input_libraries")))
    """Library that reads and decodes images; auto: dali if it is installed, else the DataLoader of the
    framework."""
    threads: int = env("DALI_THREADS", 3, Range(0, 1_024))
    """CPU threads of each rank that decode and augment images; 0: one less than the cores of a rank."""
    prefetch_queue_depth: int = env("DALI_PREFETCH_QUEUE", 2, Range(1, 1_024))
    """Batches that are prepared ahead."""
    hw_decoder_load: float = env("DALI_HW_DECODER_LOAD", 0.0, Range(0, 1))
    """Share of the images, from 0 to 1, that the GPU's JPEG engine decodes."""
    roi_decode: bool = env("DALI_ROI_DECODE", False)
    """1: only the random crop of a training image is decoded."""
    cache_size_mb: int = env("DALI_CACHE_SIZE", 0, Range(0, 1 << 20))
    """GPU memory in MiB that keeps decoded images; 0 keeps none."""
    nvjpeg_padding_mb: int = env("DALI_NVJPEG_MEMPADDING", 64, Range(0, 1 << 20))
    """Host and GPU memory in MiB that nvJPEG gets in advance."""
    preallocate_width: int = env("DALI_PREALLOCATE_WIDTH", 0, Range(0, 65_535))
    """Largest image width, in pixels, that the JPEG engine prepares for."""
    preallocate_height: int = env("DALI_PREALLOCATE_HEIGHT", 0, Range(0, 65_535))
    """Largest image height, in pixels, that the JPEG engine prepares for."""
    decoder_buffer_hint: int = env("DALI_DECODER_BUFFER_HINT", 1315942, Range(0, 2**31 - 1))
    """Expected size of a decoded image, in bytes."""
    crop_buffer_hint: int = env("DALI_CROP_BUFFER_HINT", 165581, Range(0, 2**31 - 1))
    """Expected size of a resized crop, in bytes."""
    normalize_buffer_hint: int = env("DALI_NORMALIZE_BUFFER_HINT", 441549, Range(0, 2**31 - 1))
    """Expected size of a normalised image, in bytes."""
    tmp_buffer_hint: int = env("DALI_TMP_BUFFER_HINT", 25273239, Range(0, 2**31 - 1))
    """Expected size of the memory for resizing an image, in bytes."""
    dont_use_mmap: bool = env("DALI_DONT_USE_MMAP", False)
    """1: records are read with read() instead of mapping the file into memory."""


SECTIONS = {"hyperparameters": Hyperparameters, "run": Run, "data": Data, "input_pipeline": InputPipeline}


def variables() -> Iterator[tuple[str, str, Variable]]:
    """Yield (name of the section, name of the field, variable) for every variable, in the order of the
    configuration files."""
    for section, type_ in SECTIONS.items():
        for field in dataclasses.fields(type_):
            yield section, field.name, variable_of(type_, field)


VARIABLES = {variable.name: variable for _, _, variable in variables()}
DEFAULTS = {
    v.name: v.write(v.default) for v in VARIABLES.values() if isinstance(v.default, str | int | float)
}
"""Name of a variable that has a default -> its text."""
VARIABLE_OF = {field: v.name for section, field, v in variables() if section == "hyperparameters"}
"""Name of a field of ``Hyperparameters`` -> name of its variable."""
KNOWN_NAMES = frozenset((*VARIABLES, *FIXED, *UNUSED))
"""Names of the variables of this repository's files that rn50 reads, checks or knows to be unused."""
EVERY_NAME = KNOWN_NAMES.union(*(variable.aliases for variable in VARIABLES.values()))
"""``KNOWN_NAMES``, and the names that other submitters' files have for the same variables."""
RUNS_OWN_NAMES = frozenset(variable.name for _, field, variable in variables() if field in RUNS_OWN)
"""Names of the variables of the fields ``RUNS_OWN``."""


def spelling(name: str) -> str:
    """Return "did you mean X?" if an unknown name nearly equals that of a variable or has the same letters in
    another order, else an empty string."""
    swapped = {variable for variable in EVERY_NAME if sorted(variable) == sorted(name)}
    return did_you_mean(name, EVERY_NAME, nearness=0.9) or did_you_mean(name, swapped)


def patterns_of_names() -> list[str]:
    """Return shell patterns for the names of all variables that a run reads, checks or passes through.
    ``run_with_docker.sh`` gives a container the variables that match.

    ``LD_*`` is left out, because these variables name files of one machine.
    """
    return sorted(EVERY_NAME) + sorted(f"{prefix}*" for prefix in PASSED_THROUGH if prefix != "LD_")
