"""LARS in two kernels, for all parameters of a network in one tensor (You, Gitman and Ginsburg,
arXiv:1708.03888).

With w the weights of a parameter, g its gradient summed over the samples, v its momentum and |.| the norm
over the parameter:

    r = eta |w| / (|g| / samples + decay |w| + epsilon), or 1 where |w| or |g| is 0
    v <- momentum * v + learning_rate * r * (g / samples + decay * w);  w <- w - v

Parameters without weight decay have r = 1 and decay = 0. g of the others is in a tensor of its own, in
float32 or half precision. A program has a chunk of one parameter. The first kernel writes the sums of squares
of every chunk. In the second one each program sums those of its parameter, so the result does not depend on
the order of the programs.
"""

import triton
import triton.language as tl

CHUNK = 8192
"""Values of a program."""
WARPS = 8
FIELDS = tl.constexpr(5)
"""Integers that describe a chunk: its begin and end, first and end of its parameter's chunks, and 1 with
weight decay or 0."""


@triton.jit
def _values(chunks, chunk, CHUNK: tl.constexpr):
    """Return the places (CHUNK,) of a chunk's values, and the mask of those before its end. Both are
    multiples of 64."""
    begin, end = (
        tl.multiple_of(tl.load(chunks + chunk * FIELDS), 64),
        tl.multiple_of(tl.load(chunks + chunk * FIELDS + 1), 64),
    )
    at = begin + tl.arange(0, CHUNK)
    return at, at < end


@triton.jit
def _decays(chunks, chunk):
    """Return whether a chunk's parameter has weight decay."""
    return tl.load(chunks + chunk * FIELDS + 4) == 1


@triton.jit
def _gradient(of_weights, gradients, at, inside, decays):
    """Return g (CHUNK,) of a chunk in float32. One of the two loads is masked as a whole, and moves
    nothing."""
    g = tl.load(of_weights + at, mask=inside & decays, other=0.0).to(tl.float32)
    return g + tl.load(gradients + at, mask=inside & ~decays, other=0.0)


@triton.jit
def squares_of_chunks(weights, of_weights, gradients, chunks, squares, count, CHUNK: tl.constexpr):
    """Write the sums of squares of weights and gradients of a chunk. ``of_weights`` has the gradients with
    weight decay."""
    chunk = tl.program_id(0)
    at, inside = _values(chunks, chunk, CHUNK)
    w, g = (
        tl.load(weights + at, mask=inside, other=0.0),
        _gradient(of_weights, gradients, at, inside, _decays(chunks, chunk)),
    )
    tl.store(squares + chunk, tl.sum(w * w, 0))
    tl.store(squares + count + chunk, tl.sum(g * g, 0))


@triton.jit
def update(
    weights,
    of_weights,
    gradients,
    velocities,
    chunks,
    squares,
    count,
    learning_rate,
    samples,
    eta,
    momentum,
    weight_decay,
    epsilon,
    CHUNK: tl.constexpr,
    MOST: tl.constexpr,
):
    """Write weights and momentum of a chunk. ``MOST`` is a power of 2, at least the number of chunks of any
    parameter."""
    chunk = tl.program_id(0)
    of_parameter = tl.load(chunks + chunk * FIELDS + 2) + tl.arange(0, MOST)
    among = of_parameter < tl.load(chunks + chunk * FIELDS + 3)
    decays = _decays(chunks, chunk)
    of_weight = tl.sqrt(tl.sum(tl.load(squares + of_parameter, mask=among, other=0.0), 0))
    of_gradient = tl.sqrt(tl.sum(tl.load(squares + count + of_parameter, mask=among, other=0.0), 0)) / samples
    ratio = eta * of_weight / (of_gradient + weight_decay * of_weight + epsilon)
    rate = learning_rate * tl.where(decays & (of_weight > 0) & (of_gradient > 0), ratio, 1.0)
    decay = tl.where(decays, weight_decay, 0.0)
    at, inside = _values(chunks, chunk, CHUNK)
    w, g = tl.load(weights + at, mask=inside), _gradient(of_weights, gradients, at, inside, decays)
    v = momentum * tl.load(velocities + at, mask=inside) + rate * (g / samples + decay * w)
    tl.store(velocities + at, v, mask=inside)
    tl.store(weights + at, w - v, mask=inside)
