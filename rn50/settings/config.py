"""The configuration of a run, read once from the environment into frozen dataclasses.

Every variable is defined once, as the dataclass field that it fills: its name, parser, bound, meaning and, if
any, default. Variables that decide convergence have no default, so that nobody trains with an unseen
hyperparameter. The other defaults are those of the launchers of the published MXNet submissions (rounds v0.7
to v2.1).
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rn50 import frameworks
from rn50.benchmark import rules
from rn50.errors import UserError, UserErrors
from rn50.process import environment
from rn50.settings.config_file import find, sourced_environment, unknown_names
from rn50.settings.libraries import PASSED_THROUGH
from rn50.settings.variables import (
    AREA,
    BATCH,
    BELOW_1,
    BUCKETS,
    BYTES,
    CLASSES,
    COEFFICIENT,
    DECAY,
    EPOCHS,
    EPOCHS_OR_0,
    FIXED,
    FRACTION,
    JPEG_SIDE,
    LIBRARIES,
    MACHINE,
    MACHINE_OR_0,
    MEBIBYTES,
    NODES,
    PIXELS,
    POSITIVE_EPOCHS,
    QUEUE,
    RATE,
    RELATIONS,
    SAMPLES,
    SEED,
    STEPS,
    UNNAMED,
    UNNAMED_ORGANISATION,
    UNUSED,
    WIDTH,
    Variable,
    env,
    epochs,
    excerpt,
    flag,
    framework,
    integer,
    number,
    one_of,
    optimizer,
    path,
    text,
)


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """Variables that decide convergence. They are borrowed and checked as one group."""

    optimizer: str = env(
        "OPTIMIZER", optimizer, "lars, in any published spelling, or sgd with momentum", "lars"
    )
    batch_size: int = env("BATCHSIZE", integer, "images per step on each rank", "408", BATCH)
    learning_rate: float = env("LR", number, "highest learning rate, at the end of the warm-up", "10.5", RATE)
    warmup_epochs: float = env(
        "WARMUP_EPOCHS", epochs, "epochs in which the learning rate rises from 0", "2", EPOCHS_OR_0
    )
    num_epochs: int = env(
        "NUMEPOCHS",
        integer,
        "epochs that are trained at most; without DECAY_EPOCHS the learning rate decays over as many",
        "37",
        EPOCHS,
    )
    momentum: float = env("MOM", number, "momentum of the optimizer", "0.9", BELOW_1)
    weight_decay: float = env("WD", number, "weight decay; batch norm and biases have none", "5e-5", DECAY)
    lars_eta: float | None = env(
        "LARSETA",
        number,
        "trust coefficient of LARS, a factor of every layer's learning rate",
        "0.001",
        COEFFICIENT,
        only_with={"OPTIMIZER": "lars"},
    )
    label_smoothing: float = env(
        "LABELSMOOTHING",
        number,
        "part e of the label that is spread over all classes: the target is (1 - e) * onehot + e / classes",
        "0.1",
        BELOW_1,
    )
    eval_offset: int = env(
        "EVAL_OFFSET", integer, "epochs before the first one that is evaluated", "2", EPOCHS_OR_0
    )
    eval_period: int = env("EVAL_PERIOD", integer, "epochs from one evaluation to the next", "4", EPOCHS)
    decay_epochs: float | None = env(
        "DECAY_EPOCHS",
        epochs,
        "epochs after which the learning rate has decayed, if not NUMEPOCHS",
        "33",
        POSITIVE_EPOCHS,
        default=None,
    )
    bn_gamma_zero: bool = env(
        "BN_GAMMA_ZERO",
        flag,
        "1: the last batch norm of every residual block starts with gamma 0",
        default=False,
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
        integer,
        "ranks on each machine: one per GPU, or processes that share the CPU",
        "8",
        MACHINE,
        aliases=("PGNGPU", "NFNGPU", "NGPU"),
    )
    nodes: int = env(
        "DGXNNODES", integer, "machines of a run", "1", NODES, aliases=("PGNNODES", "NFNNODES", "NNODES")
    )
    system: str = env(
        "DGXSYSTEM",
        text,
        "name of the system, and of its file configs/config_NAME.sh",
        default=UNNAMED,
        aliases=("PGSYSTEM", "NFSYSTEM"),
    )
    framework: str = env(
        "FRAMEWORK", framework, "what trains: a folder of implementations/", default=frameworks.default()
    )
    device: str = env("DEVICE", one_of("gpu", "cpu"), "what computes: gpu or cpu", default="gpu")
    precision: str = env(
        "PRECISION",
        one_of("auto", "float32", "float16", "bfloat16"),
        "numbers of the forward and backward pass; auto: float16 on a GPU, on a CPU float32 or bfloat16, "
        "whose steps are timed at warm-up",
        default="auto",
    )
    step_mode: str = env(
        "STEP_MODE",
        one_of(*frameworks.values("step_modes")),
        "how a step runs: eager, operation by operation; graph, as a CUDA graph; compile, by the "
        "framework's compiler; fused, with our kernels for batch norm; on a GPU the last two are a "
        "CUDA graph as well",
        default="eager",
    )
    seed: int | None = env(
        "SEED",
        integer,
        "seed of all random numbers of a run; by default the operating system draws one",
        "1",
        SEED,
        default=None,
    )
    organisation: str = env("SUBMISSION_ORG", text, "who submits, in the log", default=UNNAMED_ORGANISATION)
    division: str = env(
        "SUBMISSION_DIVISION",
        one_of("closed", "open"),
        "division of MLPerf, in the log: closed or open",
        default="closed",
    )
    status: str = env(
        "SUBMISSION_STATUS",
        one_of("onprem", "cloud", "research", "preview"),
        "availability of the system, in the log: onprem, cloud, research or preview",
        default="onprem",
    )
    platform: str = env(
        "SUBMISSION_PLATFORM", text, "what the system is called in the log", default="unnamed platform"
    )
    result_file: str | None = env(
        "RESULT_FILE", path, "file that the log is written to", "result_0.txt", default=None
    )
    cache_cleared: bool = env(
        "CACHE_CLEARED",
        flag,
        "1: somebody has dropped the system's file caches before this run",
        default=False,
    )
    launcher: str = env(
        "LAUNCHER",
        one_of("auto", "python", "horovodrun", "mpirun", "srun", *frameworks.values("launchers")),
        "what starts the ranks; auto takes srun in a Slurm step of several tasks, python where no Horovod is "
        "needed on one machine, else mpirun or horovodrun; others are a framework's own",
        default="auto",
    )
    hosts: str | None = env(
        "HOSTS",
        text,
        "machines of a run over several, with their ranks, the first has rank 0; Slurm needs no list",
        "host1:8,host2:8",
        default=None,
    )
    gradient_groups: int = env(
        "MXNET_HOROVOD_NUM_GROUPS",
        integer,
        "sums over the ranks in which a step's gradients are taken; of several the first begin before "
        "backpropagation ends",
        default=1,
        bound=BUCKETS,
    )
    benchmark_steps: int | None = env(
        "BENCHMARK_STEPS",
        integer,
        "steps of an epoch after which it is cut short, to measure speed",
        "100",
        STEPS,
        default=None,
    )
    save_weights: bool = env(
        "SAVE_WEIGHTS",
        flag,
        "1: the weights are saved beside the log once the clock has stopped",
        default=False,
    )
    initial_weights: str | None = env(
        "INITIAL_WEIGHTS",
        path,
        "file of saved weights that a run begins with; such a run is no MLPerf result",
        "result_0.safetensors",
        default=None,
    )
    sparsity: str = env(
        "SPARSITY",
        one_of("none", "2:4"),
        "2:4: of every four input channels of INITIAL_WEIGHTS the two of the smaller magnitude are 0, and "
        "stay so",
        default="none",
    )
    quantization: str = env(
        "QUANTIZATION",
        one_of("none", "int8"),
        "int8: INITIAL_WEIGHTS are trained on with the weights and inputs of every layer rounded as in "
        "int8, for rn50 export and rn50 quantize",
        default="none",
    )
    checkpoint_epochs: int = env(
        "CHECKPOINT_EPOCHS",
        integer,
        "epochs after which a state to resume from is saved beside the log, while the clock runs; the input "
        "pipeline starts anew then; 0 saves none",
        default=0,
        bound=EPOCHS_OR_0,
    )
    resume: bool = env(
        "RESUME",
        flag,
        "1: go on from the checkpoint beside the log, if there is one; such a run is no MLPerf result",
        default=False,
    )


RUNS_OWN = ("seed", "result_file", "cache_cleared", "hosts", "save_weights", "resume")
"""Fields of ``Run`` that may differ between the runs of one configuration."""


@dataclasses.dataclass(frozen=True)
class Data:
    """Data set, and the width of the network that fits it. The defaults are for ImageNet."""

    folder: str = env("DATADIR", path, "folder of train.rec, train.idx, val.rec and val.idx", default="/data")
    train_samples: int = env(
        "NUMEXAMPLES", integer, "images of the training set", default=rules.TRAIN_SAMPLES, bound=SAMPLES
    )
    eval_samples: int = env(
        "NUMVALEXAMPLES", integer, "images of the validation set", default=rules.EVAL_SAMPLES, bound=SAMPLES
    )
    classes: int = env("NUMCLASSES", integer, "classes of the data set", default=rules.CLASSES, bound=CLASSES)
    image_size: int = env(
        "IMAGE_SIZE",
        integer,
        "side of the network's input, in pixels",
        default=rules.IMAGE_SIZE,
        bound=PIXELS,
    )
    eval_resize: int = env(
        "EVAL_RESIZE",
        integer,
        "shorter side, in pixels, to which a validation image is resized before its centre is cropped",
        default=rules.EVAL_RESIZE,
        bound=PIXELS,
    )
    crop_area_min: float = env(
        "CROP_AREA_MIN",
        number,
        "smallest part of an image's area that a training crop takes, from 0 to 1",
        default=rules.CROP_AREA[0],
        bound=AREA,
    )
    width: float = env(
        "WIDTH", number, "factor of the network's channels; 1 is ResNet-50", default=1.0, bound=WIDTH
    )


@dataclasses.dataclass(frozen=True)
class InputPipeline:
    """Variables of the input pipeline. They affect speed only."""

    library: str = env(
        "INPUT_LIBRARY",
        one_of("auto", *frameworks.values("input_libraries")),
        "what reads and decodes images; auto: dali if it is installed, else another library of the framework",
        default="auto",
    )
    threads: int = env(
        "DALI_THREADS",
        integer,
        "CPU threads of each rank that decode and augment images; 0: one less than the cores of a rank",
        default=3,
        bound=MACHINE_OR_0,
    )
    prefetch_queue_depth: int = env(
        "DALI_PREFETCH_QUEUE", integer, "batches that are prepared ahead", default=2, bound=QUEUE
    )
    hw_decoder_load: float = env(
        "DALI_HW_DECODER_LOAD",
        number,
        "share of the images, from 0 to 1, that the GPU's JPEG engine decodes",
        default=0.0,
        bound=FRACTION,
    )
    roi_decode: bool = env(
        "DALI_ROI_DECODE", flag, "1: only the random crop of a training image is decoded", default=False
    )
    cache_size_mb: int = env(
        "DALI_CACHE_SIZE",
        integer,
        "GPU memory in MiB that keeps decoded images; 0 keeps none",
        default=0,
        bound=MEBIBYTES,
    )
    nvjpeg_padding_mb: int = env(
        "DALI_NVJPEG_MEMPADDING",
        integer,
        "host and GPU memory in MiB that nvJPEG gets in advance",
        default=64,
        bound=MEBIBYTES,
    )
    preallocate_width: int = env(
        "DALI_PREALLOCATE_WIDTH",
        integer,
        "largest image width, in pixels, that the JPEG engine prepares for",
        default=0,
        bound=JPEG_SIDE,
    )
    preallocate_height: int = env(
        "DALI_PREALLOCATE_HEIGHT",
        integer,
        "largest image height, in pixels, that the JPEG engine prepares for",
        default=0,
        bound=JPEG_SIDE,
    )
    decoder_buffer_hint: int = env(
        "DALI_DECODER_BUFFER_HINT",
        integer,
        "expected size of a decoded image, in bytes",
        default=1315942,
        bound=BYTES,
    )
    crop_buffer_hint: int = env(
        "DALI_CROP_BUFFER_HINT",
        integer,
        "expected size of a resized crop, in bytes",
        default=165581,
        bound=BYTES,
    )
    normalize_buffer_hint: int = env(
        "DALI_NORMALIZE_BUFFER_HINT",
        integer,
        "expected size of a normalised image, in bytes",
        default=441549,
        bound=BYTES,
    )
    tmp_buffer_hint: int = env(
        "DALI_TMP_BUFFER_HINT",
        integer,
        "expected size of the memory for resizing an image, in bytes",
        default=25273239,
        bound=BYTES,
    )
    dont_use_mmap: bool = env(
        "DALI_DONT_USE_MMAP",
        flag,
        "1: records are read with read() instead of mapping the file into memory",
        default=False,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration of a run. The fifth section of a file, the environment, is passed through unchanged."""

    hyperparameters: Hyperparameters
    run: Run
    data: Data
    input_pipeline: InputPipeline

    @property
    def ranks(self) -> int:
        """Number of processes on all machines, one per device."""
        return self.run.ranks_per_node * self.run.nodes

    @property
    def to_one_rank(self) -> str:
        """Settings for a run of one rank without Horovod, in words."""
        counts = {"DGXNGPU": self.run.ranks_per_node, "DGXNNODES": self.run.nodes}
        return " and ".join(f"{name}=1" for name, count in counts.items() if count > 1) or "LAUNCHER=auto"

    @property
    def global_batch_size(self) -> int:
        """Images per step on all ranks together."""
        return self.hyperparameters.batch_size * self.ranks

    @property
    def epoch_samples(self) -> int:
        """Images that an epoch trains on: all, or those of ``benchmark_steps`` steps."""
        all_, steps = self.data.train_samples, self.run.benchmark_steps
        return all_ if steps is None else min(all_, steps * self.global_batch_size)

    @property
    def departures(self) -> dict[str, str]:
        """Variables whose values break the rules of the closed division -> the rule."""
        h = self.hyperparameters
        broken = rules.departures(
            h.optimizer,
            self.global_batch_size,
            h.learning_rate,
            h.momentum,
            h.weight_decay,
            h.label_smoothing,
        )
        return {variable.name: broken[field] for _, field, variable in variables() if field in broken}

    @property
    def division(self) -> str:
        """Division that the log names: open if the hyperparameters break a rule of the closed division, else
        the division set."""
        return "open" if self.departures else self.run.division

    @property
    def is_imagenet(self) -> bool:
        """True if the run is the benchmark's complete task; otherwise every output is labelled
        ``rules.NOT_A_RESULT``."""
        return rules.NOT_A_RESULT not in self.labels

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of ``rules.LABELS`` that every output of a run has."""
        return rules.labels(dataclasses.asdict(self.data), dataclasses.asdict(self.run))

    @property
    def sha256(self) -> str:
        """SHA-256 of all values that the runs of a result have in common."""
        values = self.to_dict()
        for name in RUNS_OWN:
            del values["run"][name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def as_environment(self) -> dict[str, str]:
        """Return variables from which ``from_environment`` reads an equal configuration."""
        values = {
            variable.name: getattr(getattr(self, section), field) for section, field, variable in variables()
        }
        return {name: Variable.write(value) for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return section -> field -> value, to save as JSON beside a result file."""
        return dataclasses.asdict(self)


SECTIONS = {"hyperparameters": Hyperparameters, "run": Run, "data": Data, "input_pipeline": InputPipeline}


def variables() -> Iterator[tuple[str, str, Variable]]:
    """Yield (section, field, variable) of every variable, in the order of the configuration files."""
    for section, type_ in SECTIONS.items():
        for field in dataclasses.fields(type_):
            yield section, field.name, field.metadata["variable"]


def known_names() -> set[str]:
    """Return the name of every variable that is read or checked here, without the aliases of other makers."""
    return {variable.name for _, _, variable in variables()} | set(FIXED) | set(UNUSED)


def every_name() -> set[str]:
    """Return ``known_names`` and the aliases of other makers."""
    return known_names() | {alias for _, _, variable in variables() for alias in variable.aliases}


def patterns_of_names() -> list[str]:
    """Return shell patterns of the names of all variables that a run reads, checks or passes through, to
    carry them elsewhere.

    ``LD_*`` is left out: it names files of one machine.
    """
    return sorted(every_name()) + sorted(f"{prefix}*" for prefix in PASSED_THROUGH if prefix != "LD_")


def environment_of(name: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run of the configuration ``name``: a file, or a system of configs/.

    Without a name, return ``environ`` itself if it sets every required variable, as after `. FILE`. Else use
    CONFIG_FILE or DGXSYSTEM.

    Raises UserError if there is no such configuration, or if it cannot be sourced.
    """
    if not name and all(
        variable.given(environ)[1] or not variable.is_read(environ)
        for _, _, variable in variables()
        if variable.default is dataclasses.MISSING
    ):
        return dict(environ)
    return sourced_environment(find(name, environ), environ)


def from_environment(environ: Mapping[str, str] | None = None, config_file: str | None = None) -> Config:
    """Return the configuration that environment variables describe.

    ``environ`` is ``os.environ`` by default. ``config_file``, by default its CONFIG_FILE, is the file that
    was sourced; if it is ours, its names are checked. Raises UserError with one line for every variable that
    is missing, unknown or impossible.
    """
    environ = environment() if environ is None else environ
    config_file = config_file or environ.get("CONFIG_FILE")
    problems = []
    if config_file and os.path.exists(
        config_file
    ):  # a remote machine may have the variables but not the file
        problems = unknown_names(config_file, known_names())
    problems += [
        f"{name}={excerpt(environ[name])} {fixed.refusal}"
        for name, fixed in FIXED.items()
        if environ.get(name) and not re.fullmatch(fixed.pattern, environ[name])
    ]
    for name, parse in LIBRARIES.items():
        try:
            parse(environ.get(name) or "1")
        except ValueError as error:
            problems.append(f"{name}={excerpt(environ[name])} {error}; correct or unset it")
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    values: dict[str, Any] = {}
    for section, field, variable in variables():
        name, given = variable.given(environ)
        hint = f"for example {name}={variable.example} ({variable.meaning})"
        try:
            value = (
                None
                if not variable.is_read(values)
                else variable.default
                if given is None
                else variable.read(given)
            )
        except ValueError as error:
            problems.append(f"{name}={excerpt(str(given))} {error}; {hint}")
            continue
        if value is dataclasses.MISSING:
            where = config_file or "the configuration file"
            problems.append(
                f"{name} is not set and has no default, because convergence depends on it; set it in "
                f"{where}, {hint}"
            )
            continue
        sections[section][field] = values[variable.name] = value
    for relation in RELATIONS:
        if all(name in values for name in relation.names):
            wrong = relation.broken(*(values[name] for name in relation.names))
            if wrong:
                shown = " ".join(f"{name}={Variable.write(values[name])}" for name in relation.names)
                problems.append(f"{shown}: {wrong}")
    if problems:
        raise UserErrors(*map(UserError, problems))
    return Config(**{section: SECTIONS[section](**fields) for section, fields in sections.items()})
