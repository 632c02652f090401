"""``implementations/mxnet`` that also writes the loss of every step: FRAMEWORK=losses with
tests/system/losses on PYTHONPATH.

``losses`` beside RESULT_FILE gets a file for each rank, with a hexadecimal number for each step.
"""

import pathlib

from implementations.mxnet.train import MxnetImplementation


def create(config):
    """See ``rn50.run.implementation``."""
    return Losses(config)


class Losses(MxnetImplementation):
    """Writes down the mean loss of its part of every batch."""

    def open_data(self):
        super().open_data()
        folder = pathlib.Path(self.config.run.result_file).parent / "losses"
        folder.mkdir(exist_ok=True)
        self._stream = (folder / f"rank_{self.communicator.rank}.txt").open("w")

    def _train_step(self, batch, learning_rate):
        loss = super()._train_step(batch, learning_rate)
        if hasattr(self, "_stream"):
            self._stream.write(float(loss.mean().asscalar()).hex() + "\n")
            self._stream.flush()
        return loss
