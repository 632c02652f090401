"""A synthetic batch held in memory."""

import numpy as np

from implementations.paddle import paddle
from rn50.data.pipeline.batches import Batch, Batches, BatchFormat, RepeatedBatch
from rn50.settings.config import Config


def synthetic(config: Config, ranks: int, form: BatchFormat) -> Batches:
    """Return a full random batch, held on the device and repeated."""
    batch_size, random = config.hyperparameters.batch_size, np.random.RandomState(0)
    images = random.standard_normal(form.shape(batch_size, config.data.image_size)).astype(form.dtype)
    labels = random.randint(config.data.classes, size=batch_size)
    return RepeatedBatch(
        Batch(paddle.to_tensor(images), paddle.to_tensor(labels), batch_size, batch_size * ranks)
    )
