"""Rules that relate the values of several variables. ``broken`` checks them all for ``config.py``.

A rule is a generator function. Its parameters are the variables' names in lower case; it yields what is wrong
and the remedy, or nothing.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rn50 import frameworks
from rn50.benchmark import network, schedule
from rn50.frameworks import every, traits
from rn50.settings.fields import VARIABLES
from rn50.settings.variables import Variable


def _long_warmup(warmup_epochs: float, numepochs: int) -> Iterator[str]:
    if warmup_epochs >= numepochs:
        yield "the warm-up must be shorter than the schedule; lower WARMUP_EPOCHS or raise NUMEPOCHS"


def _short_decay(warmup_epochs: float, decay_epochs: float | None) -> Iterator[str]:
    if decay_epochs is not None and warmup_epochs >= decay_epochs:
        yield "the learning rate must decay after the warm-up; lower WARMUP_EPOCHS or raise DECAY_EPOCHS"


def _no_evaluation(eval_offset: int, numepochs: int, target: str) -> Iterator[str]:
    if eval_offset + 1 > numepochs and target != "none":  # without a target the last epoch is evaluated
        remedy = "lower EVAL_OFFSET or raise NUMEPOCHS"
        yield f"no epoch would be evaluated, the first is EVAL_OFFSET + 1; {remedy}"


def _large_batch(batchsize: int, dgxngpu: int, dgxnnodes: int, numexamples: int) -> Iterator[str]:
    images = batchsize * dgxngpu * dgxnnodes
    if images > numexamples:
        yield f"one step would need {images} images, more than the data set has; lower BATCHSIZE"


def _uneven_epoch(numexamples: int, dgxngpu: int, dgxnnodes: int, batchsize: int) -> Iterator[str]:
    # An epoch has ceil(shard / batch) steps, where shard = floor(samples / ranks). If the ranks do not divide
    # the samples, some ranks have shard + 1 samples, and if the batch divides the shard, no step has room for
    # the additional one.
    shard, left_over = divmod(numexamples, dgxngpu * dgxnnodes)
    if left_over and shard % batchsize == 0:
        lost = f"an epoch of {shard // batchsize} steps would leave out {left_over} samples"
        reason = f"the ranks do not divide NUMEXAMPLES, and BATCHSIZE divides their share of {shard}"
        yield f"{lost}: {reason}; change BATCHSIZE by one"


def _heavy_batches(batchsize: int, image_size: int, dali_prefetch_queue: int) -> Iterator[str]:
    # 3 channels of 4 bytes.
    if batchsize * image_size * image_size * 3 * 4 * dali_prefetch_queue > 1 << 40:
        remedy = "lower BATCHSIZE or DALI_PREFETCH_QUEUE"
        yield f"the batches that are prepared ahead would take more than a tebibyte; {remedy}"


def _large_sizes(image_sizes: str | None, image_size: int, numepochs: int) -> Iterator[str]:
    pairs = schedule.image_sizes(image_sizes, image_size)
    if max(size for size, _ in pairs) > image_size:
        yield "memory and input pipeline are made for images of IMAGE_SIZE at most; lower the sizes"
    if pairs[-1][1] > numepochs:
        yield "the last size begins after the last epoch; leave it out, or raise NUMEPOCHS"


def _decoupled(decoupled_wd: bool, optimizer: str) -> Iterator[str]:
    if decoupled_wd and optimizer != "sgd":
        yield "the trust ratio of LARS takes the weight decay as a part of the gradient; set OPTIMIZER=sgd"


def _not_implemented(framework: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each variable of the open recipe that is set and that the framework lacks."""
    implemented = traits(framework).open_recipe
    for name in (name for name in frameworks.values("open_recipe") if name not in implemented):
        variable = VARIABLES[name]
        if values.get(name, variable.default) != variable.default:
            others = " or ".join(other for other in every() if name in traits(other).open_recipe)
            setting = f"FRAMEWORK={framework} {name}={Variable.write(values[name])}"
            yield f"{setting}: the framework does not implement it; leave it out, or set FRAMEWORK={others}"


def _not_decoded_first(image_sizes: str | None, dali_roi_decode: bool, input_library: str) -> Iterator[str]:
    if image_sizes and not dali_roi_decode and input_library != "dataloader":
        yield "DALI resizes to several sizes after it has decoded a crop alone; set DALI_ROI_DECODE=1"


def _small_resize(image_size: int, eval_resize: int) -> Iterator[str]:
    if eval_resize < image_size:
        problem = "validation crops IMAGE_SIZE out of an image whose shorter side is EVAL_RESIZE"
        yield f"{problem}; raise EVAL_RESIZE"


def _wrong_device(framework: str, device: str) -> Iterator[str]:
    return _one_of("DEVICE", device, framework, tuple(traits(framework).precisions))


def _wrong_precision(framework: str, device: str, precision: str) -> Iterator[str]:
    # For a device that the framework lacks, ``_wrong_device`` complains, and any precision is possible.
    possible = ("auto", *traits(framework).precisions.get(device, (precision,)))
    return _one_of("PRECISION", precision, f"{framework} and DEVICE={device}", possible)


def _wrong_library(framework: str, input_library: str) -> Iterator[str]:
    return _one_of("INPUT_LIBRARY", input_library, framework, ("auto", *traits(framework).input_libraries))


def _wrong_step_mode(framework: str, step_mode: str) -> Iterator[str]:
    others = [name for name, other in every().items() if step_mode in other.step_modes]
    for problem in _one_of("STEP_MODE", step_mode, framework, traits(framework).step_modes):
        yield f"{problem}, or add --set FRAMEWORK={' or '.join(others)}"


def _wrong_optimizer(framework: str, optimizer: str) -> Iterator[str]:
    return _one_of("OPTIMIZER", optimizer, framework, traits(framework).optimizers)


def _one_of(name: str, value: str, where: str, possible: Sequence[str]) -> Iterator[str]:
    if value not in possible:
        yield f"with FRAMEWORK={where} {name} is {' or '.join(possible)}; use one of these"


def _nothing_to_prune(sparsity: str, initial_weights: str | None) -> Iterator[str]:
    if sparsity != "none" and initial_weights is None:
        yield "trained weights are pruned, and there are none; set INITIAL_WEIGHTS"


def _nothing_to_quantize(quantization: str, initial_weights: str | None) -> Iterator[str]:
    if quantization != "none" and initial_weights is None:
        yield "trained weights are trained on in int8's steps, and there are none; set INITIAL_WEIGHTS"


def _channels_in_no_groups(sparsity: str, width: float) -> Iterator[str]:
    if sparsity == "none":
        return
    from rn50.benchmark.sparsity import GROUP  # imports NumPy, half of the start-up of every verb

    first, *pruned = network.convolutions(width)  # the first, of 3 input channels, is never pruned
    if any(convolution.inputs % GROUP for convolution in pruned):
        yield "a layer of this width has input channels that do not divide by 4; use another WIDTH, such as 1"


def _not_in_float32(quantization: str, precision: str) -> Iterator[str]:
    if quantization != "none" and precision not in ("auto", "float32"):
        yield "weights and inputs are rounded in float32; set PRECISION=float32"


def _not_eager(quantization: str, step_mode: str) -> Iterator[str]:
    if quantization != "none" and step_mode != "eager":
        yield "weights and inputs are rounded operation by operation; set STEP_MODE=eager"


_SCHEDULE = (_long_warmup, _short_decay, _no_evaluation, _large_sizes, _decoupled)
_SIZES = (_large_batch, _uneven_epoch, _heavy_batches, _small_resize, _channels_in_no_groups)
_SPARSE_OR_INT8 = (_nothing_to_prune, _nothing_to_quantize, _not_in_float32, _not_eager)
_FRAMEWORK = (_not_decoded_first, _wrong_device, _wrong_precision, _wrong_library)
_OF_TRAITS = (_wrong_step_mode, _wrong_optimizer)
_VARIABLES_OF: dict[Callable[..., Iterator[str]], list[str]] = {
    rule: [name.upper() for name in inspect.signature(rule).parameters]
    for rule in (*_SCHEDULE, *_SIZES, *_SPARSE_OR_INT8, *_FRAMEWORK, *_OF_TRAITS)
}
"""Rule -> names of the variables that it takes."""


def broken(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for every rule that ``values`` break: the values, what is wrong, the remedy. ``values``
    are by name of the variable; a rule is skipped if the value of one of its variables is missing."""
    for rule, names in _VARIABLES_OF.items():
        if all(name in values for name in names):
            settings = " ".join(f"{name}={Variable.write(values[name])}" for name in names)
            for problem in rule(*(values[name] for name in names)):
                yield f"{settings}: {problem}"
    if "FRAMEWORK" in values:
        yield from _not_implemented(values["FRAMEWORK"], values)
