"""``rn50 verify --write-index`` makes an index from the records."""

import pytest
from click.testing import CliRunner

from rn50.cli import group
from rn50.data import recordio
from rn50.data.recordio import MAGIC, IndexedRecordWriter
from rn50.errors import Status, UserError
from tests.data.record_files import NUMBERS

pytestmark = pytest.mark.xdist_group("certification")


def test_an_index_that_is_not_there_can_be_written(small_set, bare):
    for name in ("train.idx", "val.idx"):
        (bare / name).unlink()
    run = CliRunner()
    numbers = [f"--{name}={number}" for name, number in NUMBERS.items()]
    done = run.invoke(group.main, ["verify", str(bare), *numbers])
    assert done.exit_code == Status.USER_ERROR
    assert f"or rn50 verify --write-index {bare} makes it from train.rec" in done.output
    done = run.invoke(group.main, ["verify", str(bare), *numbers, "--write-index"])
    assert done.exit_code == Status.SUCCESS, done.output
    for name in ("train.idx", "val.idx"):
        assert (bare / name).read_bytes() == (small_set / name).read_bytes()


def test_an_index_is_written_for_records_in_parts_and_not_for_what_is_cut_short(tmp_path):
    with IndexedRecordWriter(tmp_path / "train") as writer:
        for key in (7, 3, 900):
            writer.write(key, 1.0, b"x" * 4 * key + MAGIC * 2 + b"more")
    wanted, content = (tmp_path / "train.idx").read_bytes(), (tmp_path / "train.rec").read_bytes()
    with pytest.raises(UserError, match="train.idx: exists"):
        recordio.write_index(tmp_path / "train.idx")
    (tmp_path / "train.idx").unlink()
    recordio.write_index(tmp_path / "train.idx")
    assert (tmp_path / "train.idx").read_bytes() == wanted
    for broken in (content[:-8], content[:-1600], b"<html>", b""):
        (tmp_path / "train.idx").unlink(missing_ok=True)
        (tmp_path / "train.rec").write_bytes(broken)
        with pytest.raises(UserError, match=r"train.rec: has no record at byte \d+ \("):
            recordio.write_index(tmp_path / "train.idx")
        assert not (tmp_path / "train.idx").exists()
