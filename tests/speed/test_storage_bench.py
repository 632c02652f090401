"""``rn50 bench storage``: what it reads, whether cold is cold, and what it makes of the figures.

Processes: the cache is that of the machine.
"""

import io
import json
import mmap
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rn50.data import recordio
from rn50.errors import UserError
from rn50.speed import storage
from rn50.terminal import Terminal

RECORDS = 700


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """About 7 MB of records of all lengths."""
    folder = tmp_path_factory.mktemp("storage")
    random = np.random.default_rng(1)
    with recordio.IndexedRecordWriter(folder / "train") as writer:
        for index in range(RECORDS):
            writer.write(index, 0.0, random.bytes(int(random.integers(1, 20_000))))
    return folder


@pytest.fixture
def file(folder):
    opened = storage.TrainingFile(folder)
    yield opened
    opened.close()


def covered(pieces):
    """(first byte, last byte) of pieces that touch and do not overlap."""
    pieces = sorted(pieces)
    for (begin, size), (following, _) in zip(pieces, pieces[1:], strict=False):
        assert begin + size == following
    return pieces[0][0], sum(pieces[-1])


def test_both_orders_read_every_byte_once(file, folder):
    size = (folder / "train.rec").stat().st_size
    blocks, records = file.in_blocks(), file.shuffled(3)
    assert covered(blocks) == covered(records) == (0, size)
    assert len(blocks) == -(-size // storage.BLOCK_BYTES) and len(records) == file.records == RECORDS
    _, offsets = recordio.read_index(folder / "train.idx")
    assert {begin for begin, _ in records} == set(offsets.tolist()) and max(
        size for _, size in records) > 10_000
    assert records == file.shuffled(3) != file.shuffled(4) and records != sorted(records)
    assert file.read(records, seconds=60)[0] == RECORDS


def test_reading_ends_when_its_time_is_over(file):
    done, rate = file.read(file.shuffled(1) * 10_000, seconds=0.05)
    assert 0 < done < 10_000 * RECORDS and rate > 0


def forgotten(file):
    """What stayed in memory, on a file system that tells."""
    stayed = file.drop_from_memory()
    if stayed is None:
        pytest.skip("this file system does not say what is in memory")
    return stayed


def test_cold_is_cold_and_warm_is_warm(file):
    assert forgotten(file) <= storage.MOST_IN_MEMORY_WHEN_COLD
    file.read(file.in_blocks(), 60)
    assert file.share_in_memory() == 1.0


def test_that_cold_was_not_cold_is_said(folder, file):
    forgotten(file)
    with (
        open(folder / "train.rec", "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert sum(mapped[::4096]) > 0  # as a run has it that reads it just now
        [measured] = storage.measure([folder], seconds=0.5, rounds=1)
    assert measured.stayed_in_memory > storage.MOST_IN_MEMORY_WHEN_COLD
    assert measured.remark.startswith(f"{folder}: cold was not cold: ")
    [measured] = storage.measure([folder], seconds=0.5, rounds=1)
    assert measured.stayed_in_memory <= storage.MOST_IN_MEMORY_WHEN_COLD and measured.remark is None
    assert "not known" in measured._replace(shares=[None]).remark


def made_up(folder, rates, size=1000_000_000):
    return storage.ReadFolder(folder, 10_000, size, {kind: list(rates) for kind in storage.KINDS}, [0.0])


def test_the_difference_is_told_in_seconds_an_epoch(folder, tmp_path):
    fast, slow = made_up(folder, [2e8] * 5), made_up(tmp_path, [1e8] * 5)
    row = storage.rows([fast, slow])[0]
    assert row.seconds_per_epoch == [5.0, 10.0] and row.meaning == "5 s slower"
    assert storage.rows([slow, fast])[0].meaning == "5 s faster"
    wavering = made_up(tmp_path, [1e8, 3e8, 1e8, 1e8, 1e8])
    assert storage.rows([fast, wavering])[0].meaning == "none shown"
    assert (
        storage.rows([made_up(folder, [2e8]), made_up(tmp_path, [1e8])])[0].meaning == "none shown"
    )  # one round
    assert storage.rows([fast])[0].meaning == ""
    out = io.StringIO()
    storage.show([fast, made_up(tmp_path, [1e8] * 5, size=5)], Terminal(file=out))
    assert "the folders hold different data" in out.getvalue() and str(tmp_path) in out.getvalue()


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "rn50", "bench", "storage", *map(str, arguments)], capture_output=True,
        text=True, timeout=60)


def test_the_command_compares_two_folders(folder, tmp_path):
    for name in ("train.rec", "train.idx"):
        shutil.copy(folder / name, tmp_path)
    said = command(folder, tmp_path, "--seconds", "1", "--json")
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)
    assert [each["records"] for each in report["folders"]] == [RECORDS] * 2
    assert [row["kind"] for row in report["rows"]] == list(storage.KINDS)
    for row in report["rows"]:
        for speed, seconds in zip(row["bytes_per_second"], row["seconds_per_epoch"], strict=False):
            assert 0 < speed["lowest"] <= speed["median"] <= speed["highest"]
            assert seconds == pytest.approx(report["folders"][0]["bytes"] / speed["median"])
        assert row["second_of_first"]["rounds"] == 5
    assert "reading: 40 of 40" in said.stderr


def test_what_cannot_be_read_is_named(folder, tmp_path):
    remedy = "name a folder with train.rec and train.idx"
    nowhere = f"{tmp_path}/train.rec: cannot be read (No such file or directory); {remedy}"
    for arguments, words in (((tmp_path,), nowhere), ((folder, folder), "the same file")):
        said = command(*arguments)
        assert (
            (said.returncode, said.stdout) == (2, "") and words in said.stderr
            and len(said.stderr.splitlines()) == 1)
    (tmp_path / "train.rec").write_bytes((folder / "train.rec").read_bytes()[:1000])
    with pytest.raises(UserError, match=r"train\.idx: cannot be read"):
        storage.TrainingFile(tmp_path)
    shutil.copy(folder / "train.idx", tmp_path)
    with pytest.raises(UserError, match=r"train\.rec: shorter than its index says"):
        storage.TrainingFile(tmp_path)


def test_a_file_that_shrinks_meanwhile_is_named(folder, tmp_path):
    for name in ("train.rec", "train.idx"):
        shutil.copy(folder / name, tmp_path)
    file = storage.TrainingFile(tmp_path)
    with open(tmp_path / "train.rec", "r+b") as stream:
        stream.truncate(file.bytes // 2)
    with pytest.raises(UserError, match=r"train\.rec: ends before byte"):
        file.read(file.in_blocks(), 60)
    file.close()
