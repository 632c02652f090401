"""What a configuration file may say: how a value is read, which values are possible, and which names are only passed on."""

import dataclasses
import math
import re
from typing import Any, Callable, Dict, Optional, Tuple

PASSED_THROUGH = ("NCCL_", "HOROVOD_", "MXNET_", "OMPI_", "PMIX_", "UCX_", "SHARP_", "GLOO_", "CUDA_", "CUDNN_", "NVIDIA_",
                  "OMP_", "KMP_", "GOMP_", "MKL_", "MKLDNN_", "DNNL_", "ONEDNN_", "LD_", "SBATCH_")
"""First parts of the names that belong to libraries and launchers; their values reach them as they are."""


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


def optimizer(value: str) -> str:
    """ "lars" for every spelling of it in published files: lars, sgdwlars, sgdwfastlars, sgdwfastlarsv2."""
    if re.fullmatch(r"lars|sgdw(fast)?lars(v2)?", value.lower()):
        return "lars"
    if value.lower() == "sgd":
        raise ValueError("is not implemented yet, only LARS is")
    raise ValueError("is no known optimizer")


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
    bound: Optional[Bound] = None
    aliases: Tuple[str, ...] = ()

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


def variable(name: str, parse: Callable[[str], Any], meaning: str, example: str = "", bound: Optional[Bound] = None,
             aliases: Tuple[str, ...] = (), **default: Any) -> Any:
    """A dataclass field that is read from the environment variable ``name``.

    Without ``default`` the variable has to be set; ``example`` is a published value to name in the error then.
    ``aliases`` are names that published files of other makers use for the same thing.
    """
    if "default" in default:
        example = example or Variable.write(default["default"])
    return dataclasses.field(metadata={"variable": Variable(name, parse, meaning, example, bound, aliases)}, **default)


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A variable of published files of which this code implements one meaning only, so it is checked and then has no effect."""

    pattern: str
    refusal: str


FIXED: Dict[str, Fixed] = {
    "NETWORK": Fixed(r"resnet-?50(_?v1\.5|_v1b)?|resnet-v1b(-\w+)*",
                     "is not ResNet-50 v1.5, the only network here; published spellings are resnet-v1b-fl, resnet-v1b-stats-fl"),
    "LRSCHED": Fixed(r"pow2", "is no learning-rate schedule of LARS; the rules fix polynomial decay of power 2: LRSCHED=pow2"),
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


def _when(condition: bool, message: str) -> Optional[str]:
    return message if condition else None


def _uneven_epoch(samples: int, ranks: int, nodes: int, batch: int) -> Optional[str]:
    """steps = ceil(floor(N / R) / B) leaves out samples where B divides floor(N / R) and some rank has one sample more."""
    shard, left_over = divmod(samples, ranks * nodes)
    return _when(left_over > 0 and shard % batch == 0,
                 "an epoch of {} steps would leave out {} samples, because the ranks do not divide NUMEXAMPLES and BATCHSIZE divides "
                 "a rank's share of {}; change BATCHSIZE by one".format(shard // batch, left_over, shard))


RELATIONS = (
    Relation(("WARMUP_EPOCHS", "NUMEPOCHS"), lambda warmup, epochs: _when(
        warmup >= epochs, "the warm-up must be shorter than the schedule; lower WARMUP_EPOCHS or raise NUMEPOCHS")),
    Relation(("EVAL_OFFSET", "NUMEPOCHS"), lambda offset, epochs: _when(
        offset + 1 > epochs, "no epoch would be evaluated, the first is EVAL_OFFSET + 1; lower EVAL_OFFSET or raise NUMEPOCHS")),
    Relation(("BATCHSIZE", "DGXNGPU", "DGXNNODES", "NUMEXAMPLES"), lambda batch, ranks, nodes, samples: _when(
        batch * ranks * nodes > samples, "one step would need {} images, more than the data set has; lower BATCHSIZE".format(
            batch * ranks * nodes))),
    Relation(("NUMEXAMPLES", "DGXNGPU", "DGXNNODES", "BATCHSIZE"), _uneven_epoch),
    Relation(("IMAGE_SIZE", "EVAL_RESIZE"), lambda size, resize: _when(
        resize < size, "validation crops IMAGE_SIZE out of an image whose shorter side is EVAL_RESIZE; raise EVAL_RESIZE")),
    Relation(("DEVICE", "PRECISION"), lambda device, precision: _when(
        device == "cpu" and precision == "float16", "no CPU trains in float16; use PRECISION=auto, float32 or bfloat16")),
    Relation(("DEVICE", "PRECISION", "FRAMEWORK"), lambda device, precision, framework: _when(
        device == "gpu" and precision == "bfloat16" and framework == "mxnet",
        "MXNet computes bfloat16 on CPUs only; use PRECISION=auto, float16 or float32")),
)
