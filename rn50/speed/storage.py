"""``rn50 bench storage``: the read speed of a data set's training file, sequentially and shuffled, cold (from
storage) and warm (from the page cache).

DALI reads sequentially: every rank reads its own part of the file from front to back and shuffles in memory.
Loaders that sample from the whole file read record by record in shuffled order. A single thread reads, as in
an input pipeline. Before a cold measurement the kernel is asked to drop the file's pages from memory, and
then it is checked how many stayed.

``measure`` reads, ``rows`` makes the figures, ``show`` prints them.
"""

import contextlib
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rn50 import files, rates
from rn50.data.recordio import read_index
from rn50.errors import UserError
from rn50.printed import prints
from rn50.progress import counting
from rn50.rates import Comparison, Rates
from rn50.terminal import Terminal, print_json, table

BLOCK_BYTES = 1 << 20
"""Size of a sequential read."""
PLACES = 256
"""Number of bytes of a file that are probed to estimate how much of it is in memory: to about 3 %."""
MOST_IN_MEMORY_WHEN_COLD = 0.1
"""Largest share of a file that may be in memory without a warning that its cold measurement was not cold."""
KINDS = ("sequential, cold", "sequential, warm", "shuffled, cold", "shuffled, warm")
"""Kinds of reading, each measured on its own."""

Piece = tuple[int, int]
"""(offset in the file, number of bytes) of a read."""


class TrainingFile:
    """``train.rec`` of a folder, opened for reading. Raises UserError if it or its index cannot be read."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / "train.rec"
        self._stream = files.open_regular(self.path, "name a folder with train.rec and train.idx")
        self._file = self._stream.fileno()
        self.bytes = os.fstat(self._file).st_size
        _, offsets = read_index(folder / "train.idx")
        starts = np.unique(offsets)
        if not len(starts) or starts[-1] >= self.bytes:
            raise UserError(self.path, "shorter than its index says, or empty", "pack the data again")
        self.records = len(starts)
        sizes = np.diff(starts, append=self.bytes)
        self._records: list[Piece] = list(zip(starts.tolist(), sizes.tolist(), strict=True))

    def in_blocks(self) -> list[Piece]:
        """Return the whole file as pieces of ``BLOCK_BYTES`` in order; the last piece may be shorter."""
        return [(begin, min(BLOCK_BYTES, self.bytes - begin)) for begin in range(0, self.bytes, BLOCK_BYTES)]

    def shuffled(self, seed: int) -> list[Piece]:
        """Return the records as pieces in random order."""
        return random.Random(seed).sample(self._records, self.records)

    def read(self, pieces: Sequence[Piece], seconds: float) -> tuple[int, float]:
        """Read piece after piece until ``seconds`` have passed or all are read. Return (number of pieces that
        were read, bytes per second)."""
        buffer = memoryview(bytearray(max(size for _, size in pieces)))
        total_bytes, begin = 0, time.perf_counter()
        for count, (offset, size) in enumerate(pieces, start=1):  # noqa: B007
            if os.preadv(self._file, [buffer[:size]], offset) != size:
                end = f"ends before byte {offset + size}"
                raise UserError(self.path, end, "it changed while it was read")
            total_bytes += size
            taken = time.perf_counter() - begin
            if taken > seconds:
                break
        return count, total_bytes / taken

    def drop_from_memory(self) -> float | None:
        """Ask the kernel to drop the file's pages from memory. Return the share of the file that stayed;
        None: unknown."""
        os.fsync(self._file)  # pages not yet written cannot be dropped
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        return self.share_in_memory()

    def share_in_memory(self) -> float | None:
        """Return the share of the file that is in memory, estimated by reads that do not wait for storage.
        None: the file system or Python cannot make such reads."""
        resident, byte = 0, bytearray(1)
        places = np.linspace(0, self.bytes - 1, min(PLACES, self.bytes)).astype(int)
        for place in places:
            try:
                # Reads 1 byte if it is in memory; else raises BlockingIOError and reads nothing.
                resident += os.preadv(self._file, [byte], int(place), os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            except (AttributeError, OSError):  # a Python that was built for an older kernel lacks RWF_NOWAIT
                return None
        return resident / len(places)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class ReadFolder(NamedTuple):
    """Measurements of the training file in a folder."""

    folder: Path
    """Folder of the data set."""
    records: int
    """Number of records in train.rec."""
    bytes: int
    """Size of train.rec in bytes."""
    bytes_per_second: dict[str, list[float]]
    """Kind of ``KINDS`` -> bytes per second in every round."""
    shares: list[float | None]
    """Share of the file that was in memory before each cold measurement; None: unknown."""

    @property
    def stayed_in_memory(self) -> float | None:
        """Largest share of the file that was in memory before a cold measurement; null: unknown."""
        return max((share for share in self.shares if share is not None), default=None)

    @property
    def remark(self) -> str | None:
        """Warning that the cold figures are or may be those of reads from memory; None: no warning."""
        if self.stayed_in_memory is None:
            unknown = "whether cold was cold is not known: its file system does not say what is in memory"
            return f"{self.folder}: {unknown}"
        if self.stayed_in_memory > MOST_IN_MEMORY_WHEN_COLD:
            stayed = f"cold was not cold: {self.stayed_in_memory:.0%} of the file stayed in memory"
            cause = "as on a file system in memory or while a run has it mapped"
            return f"{self.folder}: {stayed}, {cause}; read it while nothing uses it"
        return None


# What ``--json`` prints of it.
prints(ReadFolder, lambda r: (r.folder, r.records, r.bytes, r.stayed_in_memory))


def measure(folders: Sequence[Path], seconds: float, rounds: int) -> list[ReadFolder]:
    """Measure every kind of reading in one or two folders once a round, for about ``seconds`` in all.

    Raises UserError if a folder cannot be read, or both have the same file.
    """
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(contextlib.closing(TrainingFile(folder))) for folder in folders]
        if len(opened) == 2 and os.path.samefile(opened[0].path, opened[1].path):
            raise UserError(folders[1], f"the same file as in {folders[0]}", "name two copies of the data")
        slot = seconds / rounds / len(opened) / len(KINDS)  # seconds of one measurement
        measured = [
            ReadFolder(file.folder, file.records, file.bytes, {kind: [] for kind in KINDS}, [])
            for file in opened
        ]
        progress = stack.enter_context(counting("reading"))
        done = 0
        for round_ in range(rounds):
            # Every second round measures the folders in reverse order.
            for file, row in rates.alternated(list(zip(opened, measured, strict=True)), round_):
                for order, pieces in (("sequential", file.in_blocks()), ("shuffled", file.shuffled(round_))):
                    with files.errors_of(file.path, "look at the storage and its log"):
                        row.shares.append(file.drop_from_memory())
                        count, cold = file.read(pieces, slot)
                        _, warm = file.read(pieces[:count], slot)  # now the pieces are in memory
                    row.bytes_per_second[f"{order}, cold"].append(cold)
                    row.bytes_per_second[f"{order}, warm"].append(warm)
                    done += 2
                    progress(done, rounds * len(opened) * len(KINDS))
    return measured


class Row(NamedTuple):
    """Figures of a kind of reading."""

    kind: str
    """sequential or shuffled, cold or warm."""
    bytes_per_second: list[Rates]
    """Rates of each folder."""
    seconds_per_epoch: list[float]
    """Seconds in which each folder delivers as many bytes as the first one has, which is an epoch."""
    second_of_first: Comparison | None
    """Speed of the second folder over that of the first; null: there is one folder."""

    @property
    def meaning(self) -> str:
        """Seconds per epoch that the second folder costs or saves, in words. Empty if there is one folder."""
        if self.second_of_first is None:
            return ""
        if not self.second_of_first.shown:  # too few rounds, or they do not all favour the same folder
            return "none shown"
        slower = self.seconds_per_epoch[1] - self.seconds_per_epoch[0]
        return f"{abs(slower):,.3g} s {'slower' if slower > 0 else 'faster'}"


def rows(measured: Sequence[ReadFolder]) -> list[Row]:
    """Return a row for every kind of ``KINDS``."""
    result = []
    for kind in KINDS:
        values = [measurement.bytes_per_second[kind] for measurement in measured]
        speeds = [rates.of_rounds(rounds) for rounds in values]
        seconds = [measured[0].bytes / speed.median for speed in speeds]
        second_of_first = rates.compare(*reversed(values)) if len(values) == 2 else None
        result.append(Row(kind, speeds, seconds, second_of_first))
    return result


class StorageSpeed(NamedTuple):
    """Speed of reading one or two folders."""

    folders: Sequence[ReadFolder]
    rows: list[Row]


def show(measured: Sequence[ReadFolder], console: Terminal) -> None:
    """Print a row for every kind, warnings, and what the figures mean for training."""
    first, *second = measured
    names = ("DIR", "DIR2")[: len(measured)]
    for name, data in zip(names, measured, strict=True):
        console.print(f"{name:<5} {data.folder}: {data.records:,} images, {data.bytes / 1e6:,.1f} MB")
    columns = [heading for name in names for heading in (f"{name}: MB/s (rounds)", "s/epoch")]
    last = ("difference",) if second else ()
    kinds = table(("train.rec", *columns, *last), texts=("train.rec", *last))
    by_kind = rows(measured)
    for row in by_kind:
        cells = [row.kind]
        for speed, seconds in zip(row.bytes_per_second, row.seconds_per_epoch, strict=True):
            megabytes = "{:,.0f} ({:,.0f}-{:,.0f})".format(*(value / 1e6 for value in speed))
            cells += [megabytes, f"{seconds:,.3g}"]
        kinds.add_row(*cells, *([row.meaning] if second else []))
    console.print(kinds)
    if len({(measurement.records, measurement.bytes) for measurement in measured}) > 1:
        console.print(f"the folders hold different data; seconds an epoch are for that of {first.folder}")
    for remark in filter(None, (measurement.remark for measurement in measured)):
        console.print(remark)
    if second:
        # Fewer rounds than ``rates.ROUNDS`` show no difference.
        rounds = max(len(first.bytes_per_second[KINDS[0]]), rates.ROUNDS)
        shown = f"shown where {rounds} rounds all favour one folder"
        console.print(f"difference: what DIR2 costs or saves an epoch; {shown}")
    # Seconds per epoch of the first two kinds, which are sequential, in the first folder.
    cold, warm = (row.seconds_per_epoch[0] for row in by_kind[:2])
    times = f"in {cold:,.3g} s the first time and in {warm:,.3g} s once it is in memory (sequentially)"
    waits = "training waits only where that is longer than it computes: rn50 bench input"
    console.print(f"from DIR an epoch is read {times}; {waits}")


def bench(folders: Sequence[Path], seconds: float, rounds: int, as_json: bool) -> None:
    """Measure and print the figures, as JSON or as a table."""
    measured = measure(folders, seconds, rounds)
    print_json(StorageSpeed(measured, rows(measured))) if as_json else show(measured, Terminal())
