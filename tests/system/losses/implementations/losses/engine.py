"""``implementations/mxnet`` that also writes the loss of every step: FRAMEWORK=losses with
tests/system/losses on PYTHONPATH.

``losses`` beside RESULT_FILE gets a file for each rank, with a hexadecimal number for each step.
"""

import pathlib

from implementations.mxnet.engine import MxnetEngine


class Losses(MxnetEngine):
    """Writes down the mean loss of its part of every batch."""

    def step(self, batch, learning_rate, average_share=0.0):
        loss = super().step(batch, learning_rate, average_share)
        if learning_rate:  # none at warm-up
            folder = pathlib.Path(self._config.run.result_file).parent / "losses"
            folder.mkdir(exist_ok=True)
            with (folder / f"rank_{self._communicator.rank}.txt").open("a") as stream:
                stream.write(self.mean(loss).hex() + "\n")
        return loss


create = Losses
