"""Our masks of 2:4 sparsity against those of paddle.incubate.asp."""

import numpy as np
import pytest

pytest.importorskip("paddle")

from paddle.incubate.asp import utils

from rn50.benchmark import sparsity


@pytest.mark.parametrize("shape", [(8, 16, 3, 3), (16, 8, 1, 1), (10, 32)])
def test_paddle_prunes_the_same_weights(shape):
    """It groups the last axis of a matrix, and of a convolution the third of (width, height, inputs,
    outputs)."""
    weight = np.random.RandomState(0).standard_normal(shape).astype(np.float32)
    turned = weight.T if weight.ndim == 4 else weight
    theirs = utils.create_mask(turned, n=2, m=4)
    np.testing.assert_array_equal(sparsity.mask(weight), theirs.T if weight.ndim == 4 else theirs)
    assert utils.check_sparsity(turned * theirs, n=2, m=4) and not utils.check_sparsity(turned, n=2, m=4)
