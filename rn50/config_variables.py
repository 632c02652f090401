"""What a configuration file may say: how a value is read, which values are possible, and which names are only passed on."""

import dataclasses
import math
import re
from types import MappingProxyType
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

PASSED_THROUGH = ("NCCL_", "HOROVOD_", "MXNET_", "OMPI_", "PMIX_", "UCX_", "SHARP_", "GLOO_", "CUDA_", "CUDNN_", "NVIDIA_",
                  "TORCH_", "PYTORCH_", "OMP_", "KMP_", "GOMP_", "MKL_", "MKLDNN_", "DNNL_", "ONEDNN_", "LD_", "SBATCH_")
"""First parts of the names that belong to libraries and launchers; their values reach them as they are."""


UNNAMED, UNNAMED_ORGANISATION = "unnamed", "unnamed organisation"
"""What a run is called that nobody gave a name."""


# How a value is read. Each parser raises ValueError with what is wrong, worded to stand after "NAME=value ".

def text(value: str) -> str:
    return value


def integer(value: str) -> int:
    """A whole number; "2.0" is one too."""
    number_ = number(value)
    if number_ != int(number_):
        raise ValueError("is not a whole number")
    return int(number_)


def number(value: str) -> float:
    try:
        result = float(value)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(result):
        raise ValueError("is not a finite number")
    return result


def flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value == "1"


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError("is not one of " + ", ".join(choices))
        return value.lower()
    return parse


def epochs(value: str) -> float:
    """A number of epochs; a whole one is an int, as published logs have it."""
    number_ = number(value)
    return int(number_) if number_ == int(number_) else number_


def optimizer(value: str) -> str:
    """ "sgd", or "lars" for every spelling of it in published files: lars, sgdwlars, sgdwfastlars, sgdwfastlarsv2."""
    if re.fullmatch(r"lars|sgdw(fast)?lars(v2)?", value.lower()):
        return "lars"
    if value.lower() == "sgd":
        return "sgd"
    raise ValueError("is no known optimizer, lars and sgd are")


# What a value must be. The text stands after "NAME=value ".

@dataclasses.dataclass(frozen=True)
class Bound:
    """A rule that one value has to keep."""

    text: str
    holds: Callable[[Any], bool]


POSITIVE = Bound("must be greater than 0", lambda v: v > 0)
NOT_NEGATIVE = Bound("must not be negative", lambda v: v >= 0)
AT_LEAST_1 = Bound("must be 1 or more", lambda v: v >= 1)
AT_LEAST_2 = Bound("must be 2 or more", lambda v: v >= 2)
FRACTION = Bound("must be at least 0 and at most 1", lambda v: 0 <= v <= 1)
BELOW_1 = Bound("must be at least 0 and below 1", lambda v: 0 <= v < 1)
AREA = Bound("must be above 0 and at most 1", lambda v: 0 < v <= 1)
SEED = Bound("must be from 0 to 2147483647", lambda v: 0 <= v < 2**31)


@dataclasses.dataclass(frozen=True)
class Variable:
    """One variable of a configuration file; it is the metadata of the dataclass field it fills."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    example: str
    bound: Optional[Bound]
    aliases: Tuple[str, ...]
    default: Any
    only_with: Mapping[str, str]

    def given(self, environ: Mapping[str, str]) -> Tuple[str, Optional[str]]:
        """The name under which ``environ`` sets it, and the text; an empty text counts as not set, as in ``${X:-}``."""
        for name in (self.name,) + self.aliases:
            if environ.get(name, "").strip():
                return name, environ[name].strip()
        return self.name, None

    def read(self, value: str) -> Any:
        """The value in its own type. Raises ValueError with the rule that it breaks."""
        result = self.parse(value)
        if self.bound is not None and not self.bound.holds(result):
            raise ValueError(self.bound.text)
        return result

    @staticmethod
    def write(value: Any) -> str:
        """The inverse of ``read``."""
        return str(int(value)) if isinstance(value, bool) else str(value)


def env(
    name: str,
    parse: Callable[[str], Any],
    meaning: str,
    example: str = "",
    bound: Optional[Bound] = None,
    aliases: Tuple[str, ...] = (),
    default: Any = dataclasses.MISSING,
    only_with: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """A dataclass field that is read from the environment variable ``name``.

    Without ``default`` the variable has to be set; ``example`` is a value to name in an error. ``aliases`` are the names that
    published files of other makers use for the same thing. It may be left out, and is None then, where a variable named in
    ``only_with`` has another value than the one there.
    """
    example = example or Variable.write(default)
    variable = Variable(name, parse, meaning, example, bound, aliases, default, only_with)
    return dataclasses.field(default=default, metadata={"variable": variable})


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A variable of published files of which this code implements one meaning only, so it is checked and then has no effect."""

    pattern: str
    refusal: str


FIXED: Dict[str, Fixed] = {
    "NETWORK": Fixed(r"resnet-?50(_?v1\.5|_v1b)?|resnet-v1b(-\w+)*",
                     "is not ResNet-50 v1.5, the only network that a run trains; published spellings are resnet-v1b-fl, "
                     "resnet-v1b-stats-fl"),
    "LRSCHED": Fixed(r"pow2", "is not implemented; the rules fix polynomial decay of power 2: LRSCHED=pow2"),
    "KVSTORE": Fixed(r"horovod", "would make BATCHSIZE the batch of a whole machine; only one rank per device is implemented: "
                                 "KVSTORE=horovod"),
    "BN_GROUP": Fixed(r"1", "asks for batch statistics over several ranks, which is not implemented; use BN_GROUP=1"),
}


# What the values must be to each other.


@dataclasses.dataclass(frozen=True)
class Relation:
    """A rule between the values of several variables, checked where each of them could be read.

    ``broken`` takes the values in the order of ``names`` and gives None, or what is wrong and the remedy.
    """

    names: Tuple[str, ...]
    broken: Callable[..., Optional[str]]


def _long_warmup(warmup: float, epochs: int) -> Optional[str]:
    if warmup < epochs:
        return None
    return "the warm-up must be shorter than the schedule; lower WARMUP_EPOCHS or raise NUMEPOCHS"


def _short_decay(warmup: float, decay: Optional[float]) -> Optional[str]:
    if decay is None or warmup < decay:
        return None
    return "the learning rate must decay after the warm-up; lower WARMUP_EPOCHS or raise DECAY_EPOCHS"


def _no_evaluation(offset: int, epochs: int) -> Optional[str]:
    if offset + 1 <= epochs:
        return None
    return "no epoch would be evaluated, the first is EVAL_OFFSET + 1; lower EVAL_OFFSET or raise NUMEPOCHS"


def _large_batch(batch: int, ranks: int, nodes: int, samples: int) -> Optional[str]:
    if batch * ranks * nodes <= samples:
        return None
    return f"one step would need {batch * ranks * nodes} images, more than the data set has; lower BATCHSIZE"


def _uneven_epoch(samples: int, ranks: int, nodes: int, batch: int) -> Optional[str]:
    # An epoch has ceil(floor(samples / ranks) / batch) steps. Where that batch divides the floor, no place is left for the one
    # sample more that some ranks have.
    shard, left_over = divmod(samples, ranks * nodes)
    if left_over == 0 or shard % batch != 0:
        return None
    lost = f"an epoch of {shard // batch} steps would leave out {left_over} samples"
    return f"{lost}: the ranks do not divide NUMEXAMPLES, and BATCHSIZE divides their share of {shard}; change BATCHSIZE by one"


def _small_resize(size: int, resize: int) -> Optional[str]:
    if resize >= size:
        return None
    return "validation crops IMAGE_SIZE out of an image whose shorter side is EVAL_RESIZE; raise EVAL_RESIZE"


def _wrong_precision(device: str, precision: str, framework: str) -> Optional[str]:
    if device == "cpu" and precision == "float16":
        return "no CPU trains in float16; use PRECISION=auto, float32 or bfloat16"
    if device == "gpu" and precision == "bfloat16" and framework == "mxnet":
        return "MXNet computes bfloat16 on CPUs only; use PRECISION=auto, float16 or float32"
    return None


RELATIONS = (
    Relation(("WARMUP_EPOCHS", "NUMEPOCHS"), _long_warmup),
    Relation(("WARMUP_EPOCHS", "DECAY_EPOCHS"), _short_decay),
    Relation(("EVAL_OFFSET", "NUMEPOCHS"), _no_evaluation),
    Relation(("BATCHSIZE", "DGXNGPU", "DGXNNODES", "NUMEXAMPLES"), _large_batch),
    Relation(("NUMEXAMPLES", "DGXNGPU", "DGXNNODES", "BATCHSIZE"), _uneven_epoch),
    Relation(("IMAGE_SIZE", "EVAL_RESIZE"), _small_resize),
    Relation(("DEVICE", "PRECISION", "FRAMEWORK"), _wrong_precision),
)
