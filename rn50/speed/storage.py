"""Read speed of a data set's training file, cold and warm, sequentially and shuffled (``rn50 bench
storage``).

DALI reads sequentially: every rank reads its own part of the file from front to back and shuffles in memory.
Loaders that sample from the whole file read shuffled, record by record. One thread reads, as one does in a
pipeline. Before a cold measurement the kernel is asked to drop the file's pages, and then asked whether it
did.
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
PLACES = 256
"""Number of places in a file that are probed to tell whether it is in memory."""
MOST_IN_MEMORY_WHEN_COLD = 0.1
"""Largest share of a cold file that may still be in memory."""
KINDS = ("sequential, cold", "sequential, warm", "shuffled, cold", "shuffled, warm")

Piece = tuple[int, int]
"""(offset, bytes) of one read."""


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
        """Return the file as pieces of ``BLOCK_BYTES``, the last one shorter."""
        return [(begin, min(BLOCK_BYTES, self.bytes - begin)) for begin in range(0, self.bytes, BLOCK_BYTES)]

    def shuffled(self, seed: int) -> list[Piece]:
        """Return its records in an order that ``seed`` gives."""
        return random.Random(seed).sample(self._records, self.records)

    def read(self, pieces: Sequence[Piece], seconds: float) -> tuple[int, float]:
        """Read piece after piece for about ``seconds``; return (pieces, bytes per second)."""
        buffer = memoryview(bytearray(max(size for _, size in pieces)))
        total, begin = 0, time.perf_counter()
        for done, (offset, size) in enumerate(pieces, start=1):  # noqa: B007
            if os.preadv(self._file, [buffer[:size]], offset) != size:
                end = f"ends before byte {offset + size}"
                raise UserError(self.path, end, "it changed while it was read")
            total += size
            taken = time.perf_counter() - begin
            if taken > seconds:
                break
        return done, total / taken

    def forget(self) -> float | None:
        """Ask the kernel to drop the file's pages; return the share of them that stayed, None if unknown."""
        os.fsync(self._file)  # pages not yet written cannot be dropped
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        return self.in_memory()

    def in_memory(self) -> float | None:
        """Return the share of the file that is in memory, None if the file system does not tell."""
        resident, byte = 0, bytearray(1)
        places = np.linspace(0, self.bytes - 1, min(PLACES, self.bytes)).astype(int)
        for place in places:
            try:
                resident += os.preadv(self._file, [byte], int(place), os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            except (AttributeError, OSError):  # nor does a Python that was built for an older kernel
                return None
        return resident / len(places)

    def close(self) -> None:
        self._stream.close()


class ReadFolder(NamedTuple):
    """Measurements of one folder."""

    folder: Path
    """Folder of the data set."""
    records: int
    """Records of train.rec."""
    bytes: int
    """Size of train.rec."""
    bytes_per_second: dict[str, list[float]]
    """Kind -> one value per round."""
    shares: list[float | None]
    """Share of the file that was in memory each time it should have been cold; None: unknown."""

    @property
    def stayed_in_memory(self) -> float | None:
        """Largest share of the file that was in memory when it should have been cold; null: unknown."""
        return max((share for share in self.shares if share is not None), default=None)

    @property
    def remark(self) -> str | None:
        """Return a warning about the cold figures, or None."""
        if self.stayed_in_memory is None:
            unknown = "whether cold was cold is not known: its file system does not say what is in memory"
            return f"{self.folder}: {unknown}"
        if self.stayed_in_memory > MOST_IN_MEMORY_WHEN_COLD:
            stayed = f"cold was not cold: {self.stayed_in_memory:.0%} of the file stayed in memory"
            cause = "as on a file system in memory or while a run has it mapped"
            return f"{self.folder}: {stayed}, {cause}; read it while nothing uses it"
        return None


prints(ReadFolder, lambda r: (r.folder, r.records, r.bytes, r.stayed_in_memory))


def measure(folders: Sequence[Path], seconds: float, rounds: int) -> list[ReadFolder]:
    """Measure every kind of every folder once a round, for about ``seconds`` in all.

    Raises UserError if a folder cannot be read or two are the same.
    """
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(contextlib.closing(TrainingFile(folder))) for folder in folders]
        if len(opened) == 2 and os.path.samefile(opened[0].path, opened[1].path):
            raise UserError(folders[1], f"the same file as in {folders[0]}", "name two copies of the data")
        slot = seconds / rounds / len(opened) / len(KINDS)
        measured = [
            ReadFolder(file.folder, file.records, file.bytes, {kind: [] for kind in KINDS}, [])
            for file in opened
        ]
        progress = stack.enter_context(counting("reading"))
        done = 0
        for round_ in range(rounds):
            for file, row in rates.alternated(list(zip(opened, measured, strict=True)), round_):
                for order, pieces in (("sequential", file.in_blocks()), ("shuffled", file.shuffled(round_))):
                    with files.errors_of(file.path, "look at the storage and its log"):
                        row.shares.append(file.forget())
                        read, cold = file.read(pieces, slot)
                        _, warm = file.read(pieces[:read], slot)  # the same again
                    row.bytes_per_second[f"{order}, cold"].append(cold)
                    row.bytes_per_second[f"{order}, warm"].append(warm)
                    done += 2
                    progress(done, rounds * len(opened) * len(KINDS))
    return measured


class Row(NamedTuple):
    """One kind of reading."""

    kind: str
    """sequential or shuffled, cold or warm."""
    bytes_per_second: list[Rates]
    """Rate of each folder."""
    seconds_per_epoch: list[float]
    """Seconds to read each folder once."""
    second_of_first: Comparison | None
    """Speed of the second folder over that of the first."""

    @property
    def meaning(self) -> str:
        """Return the seconds per epoch that the second folder costs or saves, if the rounds show a
        difference."""
        if self.second_of_first is None:
            return ""
        if not self.second_of_first.shown:
            return "none shown"
        slower = self.seconds_per_epoch[1] - self.seconds_per_epoch[0]
        return f"{abs(slower):,.3g} s {'slower' if slower > 0 else 'faster'}"


def rows(measured: Sequence[ReadFolder]) -> list[Row]:
    """Return one row per kind. An epoch is that of the first folder."""
    table = []
    for kind in KINDS:
        values = [measurement.bytes_per_second[kind] for measurement in measured]
        speed = [rates.of_rounds(rounds) for rounds in values]
        compared = rates.compare(*reversed(values)) if len(values) == 2 else None
        table.append(Row(kind, speed, [measured[0].bytes / rate.median for rate in speed], compared))
    return table


class StorageSpeed(NamedTuple):
    """Speed of reading one or two folders."""

    folders: Sequence[ReadFolder]
    rows: list[Row]


def show(measured: Sequence[ReadFolder], console: Terminal) -> None:
    """Print one line per kind, then the remarks."""
    first, two = measured[0], len(measured) == 2
    names = ("DIR", "DIR2")[: len(measured)]
    for name, (folder, records, size, *_) in zip(names, measured, strict=True):
        console.print(f"{name:<5} {folder}: {records:,} images, {size / 1e6:,.1f} MB")
    columns = [heading for name in names for heading in (f"{name}: MB/s (rounds)", "s/epoch")]
    last = ("difference",) if two else ()
    kinds = table(("train.rec", *columns, *last), ("train.rec", *last))
    by_kind = rows(measured)
    for row in by_kind:
        cells = [row.kind]
        for speed, seconds in zip(row.bytes_per_second, row.seconds_per_epoch, strict=True):
            megabytes = "{:,.0f} ({:,.0f}-{:,.0f})".format(*(value / 1e6 for value in speed))
            cells += [megabytes, f"{seconds:,.3g}"]
        kinds.add_row(*cells, *([row.meaning] if two else []))
    console.print(kinds)
    if len({(measurement.records, measurement.bytes) for measurement in measured}) > 1:
        console.print(f"the folders hold different data; seconds an epoch are for that of {first.folder}")
    for remark in filter(None, (measurement.remark for measurement in measured)):
        console.print(remark)
    if two:
        rounds = max(len(first.bytes_per_second[KINDS[0]]), rates.ROUNDS)
        shown = f"shown where {rounds} rounds all favour one folder"
        console.print(f"difference: what DIR2 costs or saves an epoch; {shown}")
    cold, warm = (row.seconds_per_epoch[0] for row in by_kind[:2])
    times = f"in {cold:,.3g} s the first time and in {warm:,.3g} s once it is in memory (sequentially)"
    waits = "training waits only where that is longer than it computes: rn50 bench input"
    console.print(f"from DIR an epoch is read {times}; {waits}")


def bench(folders: Sequence[Path], seconds: float, rounds: int, as_json: bool) -> None:
    """Measure and print."""
    measured = measure(folders, seconds, rounds)
    print_json(StorageSpeed(measured, rows(measured))) if as_json else show(measured, Terminal())
