"""What the tests of the contract have to know of each framework: how it holds its numbers, and who starts its
ranks."""

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from rn50.data.pipeline.batches import Batch, BatchFormat
from rn50.data.pipeline.numpy_batches import NumpyBatches
from rn50.run import input_library
from tests.conftest import with_changes

LOCAL = [sys.executable, "-m", "rn50.launch.local_launcher", "2"]
GLOO = [sys.executable, "-m", "tests.support.gloo_ranks", "2"]
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]


class Framework:
    """What the contract itself gives."""

    @staticmethod
    def weights(rank):
        """All trainable tensors by name."""
        return {name: array for name, array in rank.weights().items() if "_running_" not in name}

    @staticmethod
    def running_statistics(rank):
        """The means and variances that evaluation uses, by name."""
        return {name: array for name, array in rank.weights().items() if "_running_" in name}

    @staticmethod
    def infer(rank, batch):
        """An evaluation of a batch, ended."""
        rank.engine.correct(batch)
        rank.engine.wait()

    @classmethod
    def logits(cls, rank, images):
        """The logits of an evaluation, of a NumPy array (B, 3, S, S)."""
        batch = cls.batch(images, np.zeros(len(images), np.float32), len(images), len(images))
        return rank.engine.array(rank.engine.logits(batch.images))


class Mxnet(Framework):
    """FRAMEWORK=mxnet."""

    package = "mxnet"
    tensors, statistics = 161, 106
    """The number of trainable tensors, and of means and variances."""
    _horovodrun = (
        "import implementations.mxnet; from horovod.runner.launch import run_commandline; run_commandline()")
    two_ranks = {"shared memory": LOCAL, "Horovod": [sys.executable, "-c", _horovodrun, "--gloo", "-np", "2"]}

    @staticmethod
    def array(of):
        """An array or tensor of the framework in NumPy."""
        return of.asnumpy()

    @staticmethod
    def open_batches(config, split, communicator, seed):
        """A split through DALI, on the CPU."""
        from implementations.mxnet.dali_batches import DaliBatches

        return DaliBatches(config, split, communicator, seed, BatchFormat(None, "CHW", False), 1)

    @staticmethod
    def batch(images, labels, samples, global_samples):
        """A batch of NumPy arrays, (B, 3, S, S) and (B,)."""
        from implementations.mxnet import mx

        return Batch(mx.nd.array(images), mx.nd.array(labels), samples, global_samples)

    @staticmethod
    def train_on_running_statistics():
        """From now on batch norm takes its running statistics, which no step changes, for those of the
        batch."""
        from implementations.mxnet import model

        model.BATCH_NORM["use_global_stats"] = True


class Pytorch(Framework):
    """FRAMEWORK=pytorch."""

    package = "torch"
    tensors, statistics = 161, 106
    library = "dali"
    two_ranks = {"shared memory": LOCAL, "torchrun": TORCHRUN}

    @staticmethod
    def array(of):
        """See above, as for all that follow."""
        return of.detach().cpu().numpy()

    @classmethod
    def open_batches(cls, config, split, communicator, seed):
        config = with_changes(config, run={"framework": "pytorch"}, input_pipeline={"library": cls.library})
        form = BatchFormat(None, "HWC", False)
        return input_library.open_batches(config, split, communicator, seed, form, 1)

    @staticmethod
    def batch(images, labels, samples, global_samples):
        import torch

        return Batch(
            torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)), samples, global_samples)

    @staticmethod
    def train_on_running_statistics():
        from implementations.pytorch import model

        model.ResNet50.train = lambda network, mode=True: super(model.ResNet50, network).train(False)


class PytorchDataLoader(Pytorch):
    """FRAMEWORK=pytorch INPUT_LIBRARY=dataloader."""

    library = "dataloader"


class Paddle(Framework):
    """FRAMEWORK=paddle."""

    package = "paddle"
    tensors, statistics = 161, 106
    library = "dali"
    two_ranks = {"shared memory": LOCAL, "Gloo": GLOO}

    @staticmethod
    def array(of):
        return of.numpy()

    @classmethod
    def open_batches(cls, config, split, communicator, seed):
        config = with_changes(config, run={"framework": "paddle"}, input_pipeline={"library": cls.library})
        form = BatchFormat(None, "CHW", False)
        return input_library.open_batches(config, split, communicator, seed, form, 1)

    @staticmethod
    def batch(images, labels, samples, global_samples):
        from implementations.paddle import paddle

        return Batch(
            paddle.to_tensor(images), paddle.to_tensor(labels.astype(np.int64)), samples, global_samples)

    @staticmethod
    def train_on_running_statistics():
        from implementations.paddle import model

        model.ResNet50.train = model.ResNet50.eval


class PaddleDataLoader(Paddle):
    """FRAMEWORK=paddle INPUT_LIBRARY=dataloader."""

    library = "dataloader"


class Toy(Framework):
    """FRAMEWORK=toy with tests/toy on PYTHONPATH: what a folder and requirements alone add."""

    package = "numpy"
    tensors, statistics = 2, 0
    two_ranks = {"shared memory": LOCAL}

    @staticmethod
    def array(of):
        return of

    @staticmethod
    def open_batches(config, split, communicator, seed):
        return NumpyBatches(config, split, communicator, seed, BatchFormat(None, "CHW", False), 1)

    @staticmethod
    def batch(images, labels, samples, global_samples):
        return Batch(images, labels, samples, global_samples)

    @staticmethod
    def train_on_running_statistics():
        """Do nothing: a linear model has none."""


FRAMEWORKS = {"mxnet": Mxnet, "paddle": Paddle, "pytorch": Pytorch}
WITH_TOY: dict[str, Any] = {**FRAMEWORKS, "toy": Toy}
INPUTS = {**WITH_TOY, "paddle, dataloader": PaddleDataLoader, "pytorch, dataloader": PytorchDataLoader}
"""The frameworks, with every library that reads for them."""


def installed(name):
    """The framework of a name; the test is skipped where it is not installed."""
    package = INPUTS[name].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return INPUTS[name]
