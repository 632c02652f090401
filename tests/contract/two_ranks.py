"""Trains a few steps on batches that every rank count divides differently, and saves the weights: one rank of
test_two_ranks.py.

    python two_ranks.py OUT.npz             one process, or one rank under a launcher

The environment describes the configuration; DGXNGPU ranks share the batches. Batch norm uses its running
statistics, which no step changes here, in place of the batch's: a half batch has other statistics than a
whole one, and all the rest has to agree.
"""

import sys
from typing import Any

import numpy as np

from rn50.run import loop
from rn50.settings import config as configuration
from tests.contract.frameworks import WITH_TOY


def main(out: str) -> None:
    config = configuration.from_environment()
    framework: Any = WITH_TOY[config.run.framework]
    framework.train_on_running_statistics()
    trainer: Any = loop.Rank(config)
    trainer.warm_up(config.run.seed)
    rank, ranks = trainer.communicator.rank, trainer.communicator.size
    size, local = config.data.image_size, config.hyperparameters.batch_size
    for step in range(6):
        random = np.random.RandomState(step)
        samples = local if step % 3 < 2 else local * 3 // 4  # every third step is a ragged one
        images = random.standard_normal((local * ranks, 3, size, size)).astype(np.float32)
        labels = random.randint(config.data.classes, size=local * ranks).astype(np.float32)
        # The same samples whatever the number of ranks: the filling stands at the end of the global batch.
        real = slice(rank * samples, (rank + 1) * samples)
        padded = np.zeros((local, 3, size, size), np.float32), np.zeros(local, np.float32)
        padded[0][:samples], padded[1][:samples] = images[real], labels[real]
        batch = framework.batch(*padded, samples, samples * ranks)
        trainer.engine.step(batch, 0.5 + 0.1 * step)
        # An evaluation between two steps: in MXNet it reorders weights in memory, which must not reach
        # Horovod.
        framework.infer(trainer, batch)
    np.savez(out.replace("RANK", str(rank)), **framework.weights(trainer))
    trainer.communicator.barrier()
    trainer.close()


main(sys.argv[1])
