"""Relations between the values of several variables."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rn50.benchmark import network
from rn50.frameworks import traits


class Relation(NamedTuple):
    """A rule between the values of several variables, checked if each of them could be read.

    ``broken`` takes the values in the order of ``names``. It yields what is wrong and the remedy.
    """

    names: tuple[str, ...]
    broken: Callable[..., Iterator[str]]


def _long_warmup(warmup: float, epochs: int) -> Iterator[str]:
    if warmup >= epochs:
        yield "the warm-up must be shorter than the schedule; lower WARMUP_EPOCHS or raise NUMEPOCHS"


def _short_decay(warmup: float, decay: float | None) -> Iterator[str]:
    if decay is not None and warmup >= decay:
        yield "the learning rate must decay after the warm-up; lower WARMUP_EPOCHS or raise DECAY_EPOCHS"


def _no_evaluation(offset: int, epochs: int) -> Iterator[str]:
    if offset + 1 > epochs:
        remedy = "lower EVAL_OFFSET or raise NUMEPOCHS"
        yield f"no epoch would be evaluated, the first is EVAL_OFFSET + 1; {remedy}"


def _large_batch(batch: int, ranks: int, nodes: int, samples: int) -> Iterator[str]:
    images = batch * ranks * nodes
    if images > samples:
        yield f"one step would need {images} images, more than the data set has; lower BATCHSIZE"


def _uneven_epoch(samples: int, ranks: int, nodes: int, batch: int) -> Iterator[str]:
    # An epoch has ceil(floor(samples / ranks) / batch) steps. Some ranks have one sample more than that
    # floor. If the batch divides the floor, no step has room for that sample.
    shard, left_over = divmod(samples, ranks * nodes)
    if left_over and shard % batch == 0:
        lost = f"an epoch of {shard // batch} steps would leave out {left_over} samples"
        reason = f"the ranks do not divide NUMEXAMPLES, and BATCHSIZE divides their share of {shard}"
        yield f"{lost}: {reason}; change BATCHSIZE by one"


def _heavy_batches(batch: int, size: int, queue: int) -> Iterator[str]:
    if batch * size * size * 3 * 4 * queue > 1 << 40:
        remedy = "lower BATCHSIZE or DALI_PREFETCH_QUEUE"
        yield f"the batches that are prepared ahead would take more than a tebibyte; {remedy}"


def _small_resize(size: int, resize: int) -> Iterator[str]:
    if resize < size:
        problem = "validation crops IMAGE_SIZE out of an image whose shorter side is EVAL_RESIZE"
        yield f"{problem}; raise EVAL_RESIZE"


def _wrong_device(framework: str, device: str) -> Iterator[str]:
    return _one_of("DEVICE", device, framework, tuple(traits(framework).precisions))


def _wrong_precision(framework: str, device: str, precision: str) -> Iterator[str]:
    possible = ("auto", *traits(framework).precisions.get(device, (precision,)))
    return _one_of("PRECISION", precision, f"{framework} and DEVICE={device}", possible)


def _wrong_library(framework: str, library: str) -> Iterator[str]:
    return _one_of("INPUT_LIBRARY", library, framework, ("auto", *traits(framework).input_libraries))


def _wrong_step_mode(framework: str, mode: str) -> Iterator[str]:
    return _one_of("STEP_MODE", mode, framework, traits(framework).step_modes)


def _one_of(name: str, value: str, where: str, possible: Sequence[str]) -> Iterator[str]:
    if value not in possible:
        yield f"with FRAMEWORK={where} {name} is {' or '.join(possible)}; use one of these"


def _nothing_to_prune(pattern: str, initial_weights: str | None) -> Iterator[str]:
    if pattern != "none" and initial_weights is None:
        yield "trained weights are pruned, and there are none; set INITIAL_WEIGHTS"


def _nothing_to_quantize(quantization: str, initial_weights: str | None) -> Iterator[str]:
    if quantization != "none" and initial_weights is None:
        yield "trained weights are trained on in int8's steps, and there are none; set INITIAL_WEIGHTS"


def _channels_in_no_groups(pattern: str, width: float) -> Iterator[str]:
    if pattern == "none":
        return
    from rn50.benchmark import sparsity  # imports NumPy, half of the start-up of every verb

    first, *pruned = network.convolutions(width)
    if any(convolution.inputs % sparsity.GROUP for convolution in pruned):
        yield "a layer of this width has input channels that do not divide by 4; use another WIDTH, such as 1"


def _not_in_float32(quantization: str, precision: str) -> Iterator[str]:
    if quantization != "none" and precision not in ("auto", "float32"):
        yield "weights and inputs are rounded in float32; set PRECISION=float32"


def _not_eager(quantization: str, mode: str) -> Iterator[str]:
    if quantization != "none" and mode != "eager":
        yield "weights and inputs are rounded operation by operation; set STEP_MODE=eager"


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
