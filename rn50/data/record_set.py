"""One of the two sets as a rank goes through it, whichever library reads it: files, batches, and what is wrong with them."""

from pathlib import Path
from typing import Optional, Tuple

from rn50.data import shards, verify
from rn50.errors import UserError
from rn50.settings.config import Config


class RecordSet:
    """The training or the validation set over ``ranks`` ranks. To make one opens its files for the first time."""

    def __init__(self, config: Config, training: bool, ranks: int):
        """Raises UserError where the files are not what ``config`` says of them."""
        name, variable = ("train", "NUMEXAMPLES") if training else ("val", "NUMVALEXAMPLES")
        self.samples = config.data.train_samples if training else config.data.eval_samples
        self.rec, self.idx = (Path(config.data.folder, f"{name}.{kind}") for kind in ("rec", "idx"))
        verify.check_record_set(self.rec, self.idx, self.samples, variable)
        self._classes, self._batch_size = config.data.classes, config.hyperparameters.batch_size
        self.shard_sizes = shards.shard_sizes(self.samples, ranks)
        self.batches = shards.batches(self.samples, ranks, self._batch_size)
        """Of one pass, the same number for every shard."""

    def counts(self, shard: int, index: int) -> Tuple[int, int]:
        """How many samples of batch ``index`` are a shard's own rather than filling, and how many are those of all shards."""
        own = [shards.real_samples(size, index, self._batch_size) for size in self.shard_sizes]
        return own[shard], sum(own)

    def check_labels(self, wrong: float) -> None:
        """Raises UserError where any of the labels that were read was ``wrong``: no whole number in [0, classes)."""
        if wrong:
            raise self.fault(f"there are {wrong:.0f} labels that are no whole number in [0, {self._classes})")

    def fault(self, otherwise: str, suspect: Optional[int] = None) -> UserError:
        """The bad record of the file in words, that which starts at byte ``suspect`` or the first; or ``otherwise`` where none is
        found in good time."""
        return UserError(verify.find_bad_record(self.rec, self.idx, self._classes, suspect) or f"{self.rec}: {otherwise}")
