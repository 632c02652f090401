"""Variables of a configuration file: parsers, bounds and relations of their values."""

import dataclasses
import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rn50 import frameworks
from rn50.benchmark import network
from rn50.frameworks import traits

UNNAMED, UNNAMED_ORGANISATION = "unnamed", "unnamed organisation"
"""Default names of the system and of the submitting organisation."""


# Parsers. Each raises ValueError with a message that follows "NAME=value ".

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)


def text(value: str) -> str:
    """Return a text. Bytes of the environment that are not UTF-8 raise ValueError.

    They arrive as lone surrogates, and so does UTF-8 where the locale is ASCII.
    """
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise ValueError("is not UTF-8") from None


def path(value: str) -> str:
    """Return a path in the characters that open it in this locale. Raises as ``text`` does."""
    text(value)
    return value


def integer(value: str) -> int:
    """Return a whole number. "2.0" is accepted."""
    number_ = number(value)
    if number_ != int(number_):
        raise ValueError("is not a whole number")
    return int(number_)


def number(value: str) -> float:
    """Return a finite number in ASCII digits, plain or scientific. ``float`` also accepts "1_0", full-width
    digits and "nan"."""
    if not _NUMBER.fullmatch(value) and not _NOT_FINITE.fullmatch(value):
        raise ValueError("is not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError("is not a finite number")
    return result


def flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return value == "1"


def framework(value: str) -> str:
    """Return the name of an implementation. The settings are checked against its traits."""
    if value not in frameworks.names():
        raise ValueError(f"is no implementation (there is {', '.join(frameworks.names())})")
    return value


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError("is not one of " + ", ".join(choices))
        return value.lower()

    return parse


def epochs(value: str) -> float:
    """Return a number of epochs, as an int if it is whole, as in published logs."""
    number_ = number(value)
    return int(number_) if number_ == int(number_) else number_


def threads(value: str) -> tuple[int, ...]:
    """Return the numbers of threads, one per level of nested parallel regions, as OpenMP reads them."""
    counts = tuple(integer(level.strip()) for level in value.split(","))
    if not all(map(MACHINE.holds, counts)):
        raise ValueError(MACHINE.text)
    return counts


def optimizer(value: str) -> str:
    """Return "sgd", or "lars" for its spellings in published files: lars, sgdwlars, sgdwfastlars,
    sgdwfastlarsv2."""
    if re.fullmatch(r"lars|sgdw(fast)?lars(v2)?", value.lower()):
        return "lars"
    if value.lower() == "sgd":
        return "sgd"
    raise ValueError("is no known optimizer, lars and sgd are")


# Bounds of one value. The text follows "NAME=value ".


@dataclasses.dataclass(frozen=True)
class Bound:
    """A rule for one value."""

    text: str
    holds: Callable[[Any], bool]


def up_to(most: int, reason: str, bound: Bound) -> Bound:
    """Return ``bound`` with the upper limit ``most`` added. ``reason`` says why no value can be larger."""
    return Bound(f"{bound.text} and at most {most:,}: {reason}", lambda v: bound.holds(v) and v <= most)


POSITIVE = Bound("must be greater than 0", lambda v: v > 0)
NOT_NEGATIVE = Bound("must not be negative", lambda v: v >= 0)
AT_LEAST_1 = Bound("must be 1 or more", lambda v: v >= 1)
AT_LEAST_2 = Bound("must be 2 or more", lambda v: v >= 2)
FRACTION = Bound("must be at least 0 and at most 1", lambda v: 0 <= v <= 1)
BELOW_1 = Bound("must be at least 0 and below 1", lambda v: 0 <= v < 1)
AREA = Bound("must be above 0 and at most 1", lambda v: 0 < v <= 1)
SEED = Bound("must be from 0 to 2147483647", lambda v: 0 <= v < 2**31)
WIDTH = Bound(
    "must be from 0.01 to 16: narrower stages have no channel, wider ones no memory",
    lambda v: 0.01 <= v <= 16,
)

BATCH = up_to(1_000_000, "no step has more images", AT_LEAST_1)
RATE = up_to(1_000_000, "training diverges far below", POSITIVE)
COEFFICIENT = up_to(1, "a step would change a weight by more than itself", POSITIVE)
DECAY = up_to(1, "weights would vanish in a step", NOT_NEGATIVE)
_NO_SCHEDULE = (10_000, "no schedule is longer")
EPOCHS, EPOCHS_OR_0, POSITIVE_EPOCHS = (
    up_to(*_NO_SCHEDULE, bound) for bound in (AT_LEAST_1, NOT_NEGATIVE, POSITIVE)
)
STEPS = up_to(100_000_000, "no epoch has more", AT_LEAST_1)
MACHINE = up_to(1_024, "no machine has more", AT_LEAST_1)
MACHINE_OR_0 = up_to(1_024, "no machine has more", NOT_NEGATIVE)
NODES = up_to(65_536, "no cluster has more", AT_LEAST_1)
BUCKETS = up_to(1_024, "there are not so many gradients", AT_LEAST_1)
SAMPLES = up_to(100_000_000, "no data set of this form has more", AT_LEAST_1)
CLASSES = up_to(1_000_000, "the last layer would fit into no memory", AT_LEAST_2)
PIXELS = up_to(8_192, "no batch of such images fits into memory", AT_LEAST_1)
JPEG_SIDE = up_to(65_535, "a JPEG has no longer side", NOT_NEGATIVE)
QUEUE = up_to(1_024, "memory would hold nothing but batches", AT_LEAST_1)
MEBIBYTES = up_to(1 << 20, "that is a tebibyte", NOT_NEGATIVE)
BYTES = up_to(2**31 - 1, "DALI takes 32 bits", NOT_NEGATIVE)


@dataclasses.dataclass(frozen=True)
class Variable:
    """One variable of a configuration file, stored as metadata of the dataclass field that it fills."""

    name: str
    parse: Callable[[str], Any]
    meaning: str
    example: str
    bound: Bound | None
    aliases: tuple[str, ...]
    default: Any
    only_with: Mapping[str, str]

    def given(self, environ: Mapping[str, str]) -> tuple[str, str | None]:
        """Return the name under which ``environ`` sets the variable, and the text. Empty counts as not set,
        as in ``${X:-}``."""
        for name in (self.name,) + self.aliases:
            if environ.get(name, "").strip(string.whitespace):
                return name, environ[name].strip(string.whitespace)
        return self.name, None

    def is_read(self, values: Mapping[str, Any]) -> bool:
        """Return True if the run reads the variable, given the ``values`` of the variables in
        ``only_with``."""
        return all(values.get(other, required) == required for other, required in self.only_with.items())

    def read(self, value: str) -> Any:
        """Return the parsed value. Raises ValueError with the rule that it breaks."""
        result = self.parse(value)
        if self.bound is not None and not self.bound.holds(result):
            raise ValueError(self.bound.text)
        return result

    @staticmethod
    def write(value: Any) -> str:
        """Return the text of a value: the inverse of ``read``."""
        return str(int(value)) if isinstance(value, bool) else str(value)


def env(
    name: str,
    parse: Callable[[str], Any],
    meaning: str,
    example: str = "",
    bound: Bound | None = None,
    aliases: tuple[str, ...] = (),
    default: Any = dataclasses.MISSING,
    only_with: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Return a dataclass field that is read from the environment variable ``name``.

    Without ``default`` the variable must be set. ``example`` is a value to name in an error. ``aliases`` are
    the names of the same variable in published files of other makers. The variable is not read, and is None,
    if a variable in ``only_with`` has a value other than the one given there.
    """
    example = example or Variable.write(default)
    variable = Variable(name, parse, meaning, example, bound, aliases, default, only_with)
    return dataclasses.field(default=default, metadata={"variable": variable})


@dataclasses.dataclass(frozen=True)
class Fixed:
    """A variable of published files with only one implemented meaning. It is checked, and has no further
    effect."""

    pattern: str
    meaning: str
    refusal: str


FIXED: dict[str, Fixed] = {
    "NETWORK": Fixed(
        r"resnet-?50(_?v1\.5|_v1b)?|resnet-v1b(-\w+)*",
        "network that is trained",
        "is not ResNet-50 v1.5, the only network that a run trains; published spellings are resnet-v1b-fl, "
        "resnet-v1b-stats-fl",
    ),
    "LRSCHED": Fixed(
        r"pow2",
        "how the learning rate decays: pow2, with the square of the steps left",
        "is not implemented; the rules fix polynomial decay of power 2: LRSCHED=pow2",
    ),
    "KVSTORE": Fixed(
        r"horovod",
        "what sums gradients over the ranks",
        "would make BATCHSIZE the batch of a whole machine; only one rank per device is implemented: "
        "KVSTORE=horovod",
    ),
    "BN_GROUP": Fixed(
        r"1",
        "ranks that share the statistics of batch norm",
        "asks for batch statistics over several ranks, which is not implemented; use BN_GROUP=1",
    ),
}

_BOUND = "ranks are bound to the cores that are there"
_SLURM = "only Slurm reads it, when the job is submitted"
UNUSED: dict[str, tuple[str, str]] = {
    "DGXNSOCKET": ("CPU sockets of a machine", _BOUND),
    "DGXSOCKETCORES": ("cores of a socket", _BOUND),
    "DGXHT": ("hardware threads of a core", _BOUND),
    "WALLTIME": ("time limit of a Slurm job, as hours:minutes:seconds", _SLURM),
    "INPUT_BATCH_MULTIPLIER": ("batches that are prepared at once", "batches are prepared one at a time"),
}
"""Variables of published files that no run reads -> what they mean, and why they have no effect."""

LIBRARIES: dict[str, Callable[[str], Any]] = {"OMP_NUM_THREADS": threads}
"""Variables that are passed through but checked first, because no rank would start with an impossible
value."""


def excerpt(value: str) -> str:
    """Return a value as errors show it: at most its first 97 characters and "..." if it has more than 100."""
    return value if len(value) <= 100 else value[:97] + "..."


# Relations between values.


@dataclasses.dataclass(frozen=True)
class Relation:
    """A rule between the values of several variables, checked if each of them could be read.

    ``broken`` takes the values in the order of ``names``. It returns None, or what is wrong and the remedy.
    """

    names: tuple[str, ...]
    broken: Callable[..., str | None]


def _long_warmup(warmup: float, epochs: int) -> str | None:
    if warmup < epochs:
        return None
    return "the warm-up must be shorter than the schedule; lower WARMUP_EPOCHS or raise NUMEPOCHS"


def _short_decay(warmup: float, decay: float | None) -> str | None:
    if decay is None or warmup < decay:
        return None
    return "the learning rate must decay after the warm-up; lower WARMUP_EPOCHS or raise DECAY_EPOCHS"


def _no_evaluation(offset: int, epochs: int) -> str | None:
    if offset + 1 <= epochs:
        return None
    return "no epoch would be evaluated, the first is EVAL_OFFSET + 1; lower EVAL_OFFSET or raise NUMEPOCHS"


def _large_batch(batch: int, ranks: int, nodes: int, samples: int) -> str | None:
    if batch * ranks * nodes <= samples:
        return None
    return f"one step would need {batch * ranks * nodes} images, more than the data set has; lower BATCHSIZE"


def _uneven_epoch(samples: int, ranks: int, nodes: int, batch: int) -> str | None:
    # An epoch has ceil(floor(samples / ranks) / batch) steps. Some ranks have one sample more than that
    # floor. If the batch divides the floor, no step has room for that sample.
    shard, left_over = divmod(samples, ranks * nodes)
    if left_over == 0 or shard % batch != 0:
        return None
    lost = f"an epoch of {shard // batch} steps would leave out {left_over} samples"
    return (
        f"{lost}: the ranks do not divide NUMEXAMPLES, and BATCHSIZE divides their share of {shard}; "
        "change BATCHSIZE by one"
    )


def _heavy_batches(batch: int, size: int, queue: int) -> str | None:
    most = 1 << 40
    if batch * size * size * 3 * 4 * queue <= most:
        return None
    return (
        "the batches that are prepared ahead would take more than a tebibyte; lower BATCHSIZE or "
        "DALI_PREFETCH_QUEUE"
    )


def _small_resize(size: int, resize: int) -> str | None:
    if resize >= size:
        return None
    return "validation crops IMAGE_SIZE out of an image whose shorter side is EVAL_RESIZE; raise EVAL_RESIZE"


def _wrong_device(framework: str, device: str) -> str | None:
    return _one_of("DEVICE", device, framework, tuple(traits(framework).precisions))


def _wrong_precision(framework: str, device: str, precision: str) -> str | None:
    return _one_of(
        "PRECISION",
        precision,
        f"{framework} and DEVICE={device}",
        ("auto", *traits(framework).precisions.get(device, (precision,))),
    )


def _wrong_library(framework: str, library: str) -> str | None:
    return _one_of("INPUT_LIBRARY", library, framework, ("auto", *traits(framework).input_libraries))


def _wrong_step_mode(framework: str, mode: str) -> str | None:
    return _one_of("STEP_MODE", mode, framework, traits(framework).step_modes)


def _one_of(name: str, value: str, where: str, possible: Sequence[str]) -> str | None:
    if value in possible:
        return None
    return f"with FRAMEWORK={where} {name} is {' or '.join(possible)}; use one of these"


def _nothing_to_prune(pattern: str, initial_weights: str | None) -> str | None:
    if pattern == "none" or initial_weights is not None:
        return None
    return "trained weights are pruned, and there are none; set INITIAL_WEIGHTS"


def _channels_in_no_groups(pattern: str, width: float) -> str | None:
    from rn50.benchmark import sparsity  # imports NumPy, half of the start-up of every verb

    first, *pruned = network.convolutions(width)
    if pattern == "none" or all(convolution.inputs % sparsity.GROUP == 0 for convolution in pruned):
        return None
    return "a layer of this width has input channels that do not divide by 4; use another WIDTH, such as 1"


def _nothing_to_quantize(quantization: str, initial_weights: str | None) -> str | None:
    if quantization == "none" or initial_weights is not None:
        return None
    return "trained weights are trained on in int8's steps, and there are none; set INITIAL_WEIGHTS"


def _not_in_float32(quantization: str, precision: str) -> str | None:
    if quantization == "none" or precision in ("auto", "float32"):
        return None
    return "weights and inputs are rounded in float32; set PRECISION=float32"


def _not_eager(quantization: str, mode: str) -> str | None:
    if quantization == "none" or mode == "eager":
        return None
    return "weights and inputs are rounded operation by operation; set STEP_MODE=eager"


RELATIONS = (
    Relation(("WARMUP_EPOCHS", "NUMEPOCHS"), _long_warmup),
    Relation(("WARMUP_EPOCHS", "DECAY_EPOCHS"), _short_decay),
    Relation(("EVAL_OFFSET", "NUMEPOCHS"), _no_evaluation),
    Relation(("BATCHSIZE", "DGXNGPU", "DGXNNODES", "NUMEXAMPLES"), _large_batch),
    Relation(("NUMEXAMPLES", "DGXNGPU", "DGXNNODES", "BATCHSIZE"), _uneven_epoch),
    Relation(("BATCHSIZE", "IMAGE_SIZE", "DALI_PREFETCH_QUEUE"), _heavy_batches),
    Relation(("IMAGE_SIZE", "EVAL_RESIZE"), _small_resize),
    Relation(("SPARSITY", "INITIAL_WEIGHTS"), _nothing_to_prune),
    Relation(("SPARSITY", "WIDTH"), _channels_in_no_groups),
    Relation(("QUANTIZATION", "INITIAL_WEIGHTS"), _nothing_to_quantize),
    Relation(("QUANTIZATION", "PRECISION"), _not_in_float32),
    Relation(("QUANTIZATION", "STEP_MODE"), _not_eager),
    Relation(("FRAMEWORK", "DEVICE"), _wrong_device),
    Relation(("FRAMEWORK", "DEVICE", "PRECISION"), _wrong_precision),
    Relation(("FRAMEWORK", "INPUT_LIBRARY"), _wrong_library),
    Relation(("FRAMEWORK", "STEP_MODE"), _wrong_step_mode),
)
