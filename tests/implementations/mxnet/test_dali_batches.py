"""A batch of DALI's is in MXNet's array before the engine can read it."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("implementations.mxnet")
mx = pytest.importorskip("implementations.mxnet").mx

from implementations.mxnet.dali_batches import copy_in  # noqa: E402

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class OnDevice:
    """In place of a tensor on a GPU, which no machine without one can make. A copy that is not waited for
    never ends here."""

    def shape(self):
        return [2, 3]

    def copy_to_external(self, address, cuda_stream=None, non_blocking=False):
        if not non_blocking:
            ctypes.memmove(address, VALUES.ctypes.data, VALUES.nbytes)


def test_the_copy_is_waited_for():
    array = mx.nd.zeros((2, 3))
    copy_in(OnDevice(), array)
    np.testing.assert_array_equal(array.asnumpy(), VALUES)


def test_the_engine_has_read_the_array_before():
    array, factor = mx.nd.ones((2, 3)), mx.nd.ones((2, 3))
    for _ in range(200):
        factor = factor * array  # the engine is behind when the copy begins
    copy_in(OnDevice(), array)
    np.testing.assert_array_equal(factor.asnumpy(), np.ones((2, 3)))


def test_another_shape_is_refused():
    with pytest.raises(RuntimeError, match=r"\[2, 3\].*\(3, 2\)"):
        copy_in(OnDevice(), mx.nd.zeros((3, 2)))
