"""The configuration of a run, read once from the environment into frozen dataclasses.

This is the only file of the project that reads ``os.environ`` for a run. Every variable stands once, as the dataclass field
that it fills: its name, how it is read, which values are possible, what it means and, where it has one, its default. What decides
convergence has no default, so nobody trains on a hyperparameter that he has not seen. The other defaults are those that
the launchers of the published MXNet submissions (rounds v0.7 to v2.1) give to variables a configuration file leaves out.
"""

import dataclasses
import difflib
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from rn50 import rules
from rn50.config_variables import (AREA, AT_LEAST_1, AT_LEAST_2, BELOW_1, FIXED, FRACTION, NOT_NEGATIVE, PASSED_THROUGH, POSITIVE,
                                   RELATIONS, SEED, Variable, flag, integer, number, one_of, optimizer, text, variable)
from rn50.errors import UserError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
"""Where our own configuration files lie; in them an unknown name is an error, in anybody else's it is ignored."""


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What decides convergence; borrowed and checked as one group."""

    optimizer: str = variable("OPTIMIZER", optimizer, "lars, in any published spelling", "lars")
    batch_size: int = variable("BATCHSIZE", integer, "images per rank and step", "408", AT_LEAST_1)
    learning_rate: float = variable("LR", number, "base learning rate, reached at the end of the warm-up", "10.5", POSITIVE)
    warmup_epochs: int = variable("WARMUP_EPOCHS", integer, "epochs of linear warm-up", "2", NOT_NEGATIVE)
    num_epochs: int = variable("NUMEPOCHS", integer, "length of the schedule, and the last epoch that is trained", "37",
                               AT_LEAST_1)
    momentum: float = variable("MOM", number, "momentum", "0.9", BELOW_1)
    weight_decay: float = variable("WD", number, "weight decay of weights; gamma, beta and biases have none", "5e-5",
                                   NOT_NEGATIVE)
    lars_eta: float = variable("LARSETA", number, "trust coefficient of LARS", "0.001", POSITIVE)
    label_smoothing: float = variable("LABELSMOOTHING", number, "e in the target (1 - e) * onehot + e / classes", "0.1", BELOW_1)
    eval_offset: int = variable("EVAL_OFFSET", integer, "epochs before the first that is evaluated", "2", NOT_NEGATIVE)
    eval_period: int = variable("EVAL_PERIOD", integer, "epochs from one evaluation to the next", "4", AT_LEAST_1)
    bn_gamma_zero: bool = variable("BN_GAMMA_ZERO", flag, "1: the last batch norm gamma of every block starts at 0",
                                   default=False)


@dataclasses.dataclass(frozen=True)
class Run:
    """Where and as what it runs."""

    # No defaults: the number of ranks decides the global batch size.
    ranks_per_node: int = variable("DGXNGPU", integer, "ranks on each machine, one per GPU", "8", AT_LEAST_1,
                                   aliases=("PGNGPU", "NFNGPU", "NGPU"))
    nodes: int = variable("DGXNNODES", integer, "machines", "1", AT_LEAST_1, aliases=("PGNNODES", "NFNNODES", "NNODES"))
    system: str = variable("DGXSYSTEM", text, "name of the system and of its configuration file", default="unnamed",
                           aliases=("PGSYSTEM", "NFSYSTEM"))
    framework: str = variable("FRAMEWORK", text, "folder under implementations/ that trains", default="mxnet")
    device: str = variable("DEVICE", one_of("gpu", "cpu"), "gpu or cpu", default="gpu")
    precision: str = variable("PRECISION", one_of("auto", "float32", "float16", "bfloat16"),
                              "of activations and gradients; auto: float16 on a GPU, on a CPU what it computes fastest",
                              default="auto")
    sockets: Optional[int] = variable("DGXNSOCKET", integer, "CPU sockets of a machine", "2", AT_LEAST_1, default=None,
                                      aliases=("PGNSOCKET", "NFNSOCKET"))
    cores_per_socket: Optional[int] = variable("DGXSOCKETCORES", integer, "cores of a socket", "64", AT_LEAST_1, default=None,
                                               aliases=("PGSOCKETCORES", "NFSOCKETCORES", "SOCKETCORES"))
    hyperthreads: Optional[int] = variable("DGXHT", integer, "hardware threads of a core", "2", AT_LEAST_1, default=None,
                                           aliases=("PGHT", "NFHT", "HT"))
    walltime: Optional[str] = variable("WALLTIME", text, "time limit of a Slurm job", "01:00:00", default=None)
    seed: Optional[int] = variable("SEED", integer, "seed of the run; by default taken from the operating system", "1", SEED,
                                   default=None)
    organisation: str = variable("SUBMISSION_ORG", text, "submission_org of the log", default="unnamed organisation")
    division: str = variable("SUBMISSION_DIVISION", one_of("closed", "open"), "submission_division of the log", default="closed")
    status: str = variable("SUBMISSION_STATUS", one_of("onprem", "cloud", "research", "preview"), "submission_status of the log",
                           default="onprem")
    platform: str = variable("SUBMISSION_PLATFORM", text, "submission_platform of the log; by default the system's name",
                             default="")
    result_file: Optional[str] = variable("RESULT_FILE", text, "file that the log is written to", "result_0.txt", default=None)
    benchmark_steps: Optional[int] = variable("BENCHMARK_STEPS", integer, "train only so many steps per epoch, to measure speed",
                                              "100", AT_LEAST_1, default=None)


@dataclasses.dataclass(frozen=True)
class Data:
    """What it is trained on, and the width of the network that fits it. The defaults are ImageNet."""

    folder: str = variable("DATADIR", text, "folder of train.rec, train.idx, val.rec, val.idx", default="/data")
    train_samples: int = variable("NUMEXAMPLES", integer, "images to train on", default=rules.TRAIN_SAMPLES, bound=AT_LEAST_1)
    eval_samples: int = variable("NUMVALEXAMPLES", integer, "images to validate on", default=rules.EVAL_SAMPLES, bound=AT_LEAST_1)
    classes: int = variable("NUMCLASSES", integer, "classes", default=rules.CLASSES, bound=AT_LEAST_2)
    image_size: int = variable("IMAGE_SIZE", integer, "side of the network's input in pixels", default=rules.IMAGE_SIZE,
                               bound=AT_LEAST_1)
    eval_resize: int = variable("EVAL_RESIZE", integer, "shorter side of a validation image before its centre is cropped",
                                default=rules.EVAL_RESIZE, bound=AT_LEAST_1)
    crop_area_min: float = variable("CROP_AREA_MIN", number, "smallest part of an image's area that a training crop takes",
                                    default=rules.CROP_AREA[0], bound=AREA)
    width: float = variable("WIDTH", number, "multiplies every channel count; 1 is ResNet-50", default=1.0, bound=POSITIVE)


@dataclasses.dataclass(frozen=True)
class InputPipeline:
    """What decides speed only."""

    threads: int = variable("DALI_THREADS", integer, "CPU threads of a rank's pipeline", default=3, bound=AT_LEAST_1)
    prefetch_queue_depth: int = variable("DALI_PREFETCH_QUEUE", integer, "batches prepared ahead", default=2, bound=AT_LEAST_1)
    hw_decoder_load: float = variable("DALI_HW_DECODER_LOAD", number, "share of images for the GPU's JPEG engine", default=0.0,
                                      bound=FRACTION)
    roi_decode: bool = variable("DALI_ROI_DECODE", flag, "1: decode only the random crop of a training image", default=False)
    cache_size_mb: int = variable("DALI_CACHE_SIZE", integer, "MiB of GPU memory for decoded images", default=0,
                                  bound=NOT_NEGATIVE)
    nvjpeg_padding_mb: int = variable("DALI_NVJPEG_MEMPADDING", integer, "MiB of host and GPU memory given to nvJPEG in advance",
                                      default=64, bound=NOT_NEGATIVE)
    preallocate_width: int = variable("DALI_PREALLOCATE_WIDTH", integer, "largest width that the JPEG engine prepares for",
                                      default=0, bound=NOT_NEGATIVE)
    preallocate_height: int = variable("DALI_PREALLOCATE_HEIGHT", integer, "largest height that the JPEG engine prepares for",
                                       default=0, bound=NOT_NEGATIVE)
    decoder_buffer_hint: int = variable("DALI_DECODER_BUFFER_HINT", integer, "bytes of a decoded image", default=1315942,
                                        bound=NOT_NEGATIVE)
    crop_buffer_hint: int = variable("DALI_CROP_BUFFER_HINT", integer, "bytes of a resized crop", default=165581,
                                     bound=NOT_NEGATIVE)
    normalize_buffer_hint: int = variable("DALI_NORMALIZE_BUFFER_HINT", integer, "bytes of a normalised image", default=441549,
                                          bound=NOT_NEGATIVE)
    tmp_buffer_hint: int = variable("DALI_TMP_BUFFER_HINT", integer, "bytes of scratch memory for resizing", default=25273239,
                                    bound=NOT_NEGATIVE)
    dont_use_mmap: bool = variable("DALI_DONT_USE_MMAP", flag, "1: read() the records instead of mapping the file", default=False)
    input_batch_multiplier: int = variable("INPUT_BATCH_MULTIPLIER", integer, "batches prepared at once", default=1,
                                           bound=AT_LEAST_1)


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run. The fifth section of a file, the environment, is passed through untouched."""

    hyperparameters: Hyperparameters
    run: Run
    data: Data
    input_pipeline: InputPipeline

    @property
    def ranks(self) -> int:
        """Processes of the run, one per device, over all machines."""
        return self.run.ranks_per_node * self.run.nodes

    @property
    def global_batch_size(self) -> int:
        """Images per step over all ranks."""
        return self.hyperparameters.batch_size * self.ranks

    @property
    def is_imagenet(self) -> bool:
        """Whether it is the benchmark's own task, whole; if not, every output is labelled ``rules.NOT_A_RESULT``."""
        task = dataclasses.replace(Data(), folder=self.data.folder)
        return self.data == task and self.run.benchmark_steps is None

    def as_environment(self) -> Dict[str, str]:
        """Variables from which ``from_environment`` reads this very configuration."""
        values = {variable_.name: getattr(getattr(self, section), field) for section, field, variable_ in variables()}
        return {name: Variable.write(value) for name, value in values.items() if value is not None}

    def to_dict(self) -> Dict[str, Dict[str, Any]]:
        """Section -> field -> value, for saving as JSON beside a result file."""
        return dataclasses.asdict(self)


SECTIONS = {"hyperparameters": Hyperparameters, "run": Run, "data": Data, "input_pipeline": InputPipeline}


def variables() -> Iterator[Tuple[str, str, Variable]]:
    """(section, field, variable) of every variable, in the order of the files."""
    for section, type_ in SECTIONS.items():
        for field in dataclasses.fields(type_):
            yield section, field.name, field.metadata["variable"]


def known_names() -> Set[str]:
    """Every name that means something here, aliases of other makers left out."""
    return {variable_.name for _, _, variable_ in variables()} | set(FIXED)


def is_passed_through(name: str) -> bool:
    """Whether ``name`` belongs to a library or launcher and reaches it untouched."""
    return name.startswith(PASSED_THROUGH)


def is_ours(config_file: str) -> bool:
    """Whether ``config_file`` lies in this repository's ``configs/``."""
    return Path(config_file).resolve().parent == CONFIGS


def names_set_by(config_file: str) -> List[str]:
    """Names that a file sets, read from its text and never executed, with those of a file beside it that it sources.

    Raises UserError where the file cannot be read.
    """
    found: Dict[str, None] = {}
    waiting, seen = [Path(config_file)], set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        try:
            content = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError("{}: cannot be read ({}); name an existing configuration file".format(path, error.strerror)) from None
        found.update(dict.fromkeys(re.findall(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=", content, re.MULTILINE)))
        for name in re.findall(r"^[ \t]*(?:source|\.)[ \t].*?([\w.+-]+\.sh)\b", content, re.MULTILINE):
            if path.parent / name not in seen and (path.parent / name).is_file():
                waiting.append(path.parent / name)
    return list(found)


def from_environment(environ: Optional[Mapping[str, str]] = None, config_file: Optional[str] = None) -> Config:
    """The configuration that environment variables describe.

    ``environ`` is ``os.environ`` by default, ``config_file`` its CONFIG_FILE: the file that was sourced, whose names are checked
    where it is ours. Raises UserError with one line for every variable that is missing, unknown or impossible.
    """
    environ = os.environ if environ is None else environ
    config_file = config_file or environ.get("CONFIG_FILE")
    problems = _unknown_names(config_file) if config_file and is_ours(config_file) else []
    values: Dict[str, Any] = {}
    for name, fixed in FIXED.items():
        if environ.get(name) and not re.fullmatch(fixed.pattern, environ[name]):
            problems.append("{}={} {}".format(name, environ[name], fixed.refusal))
    for section, field, variable_ in variables():
        name, given = given_value(variable_, environ)
        if given is None:
            default = _default(section, field)
            if default is dataclasses.MISSING:
                problems.append("{} is not set and has no default, because it decides convergence; set it in {}, for example "
                                "{}={} ({})".format(name, config_file or "the configuration file", name, variable_.example,
                                                    variable_.meaning))
            else:
                values[variable_.name] = default
            continue
        try:
            values[variable_.name] = variable_.read(given)
        except ValueError as error:
            problems.append("{}={} {}; for example {}={} ({})".format(name, given, error, name, variable_.example,
                                                                      variable_.meaning))
    problems += _broken_relations(values)
    if problems:
        raise UserError("\n".join(problems))
    values["SUBMISSION_PLATFORM"] = values["SUBMISSION_PLATFORM"] or values["DGXSYSTEM"]
    return Config(**{section: type_(**{field: values[variable_.name] for section_, field, variable_ in variables()
                                       if section_ == section})
                     for section, type_ in SECTIONS.items()})


def given_value(variable_: Variable, environ: Mapping[str, str]) -> Tuple[str, Optional[str]]:
    """The name under which ``environ`` sets a variable, and its text; an empty text counts as not set, as in ``${X:-}``."""
    for name in (variable_.name,) + variable_.aliases:
        if environ.get(name, "").strip():
            return name, environ[name].strip()
    return variable_.name, None


def _default(section: str, field: str) -> Any:
    return SECTIONS[section].__dataclass_fields__[field].default


def _unknown_names(config_file: str) -> List[str]:
    known = known_names()
    problems = []
    for name in names_set_by(config_file):
        if name not in known and not is_passed_through(name):
            nearest = difflib.get_close_matches(name, known, n=1)
            problems.append("{} in {} is no known variable; {}".format(
                name, config_file, "did you mean {}?".format(nearest[0]) if nearest else "remove it"))
    return problems


def _broken_relations(values: Mapping[str, Any]) -> List[str]:
    problems = []
    for relation in RELATIONS:
        if all(name in values for name in relation.names):
            wrong = relation.broken(*(values[name] for name in relation.names))
            if wrong is not None:
                shown = " ".join("{}={}".format(name, Variable.write(values[name])) for name in relation.names)
                problems.append("{}: {}".format(shown, wrong))
    return problems
