"""``rn50 run A --against B`` as a user types it: in turn, interrupted, resumed, compared."""

import json
import signal

from rn50.results.parse import read_log
from tests.support import documented
from tests.system.job import BUSY_S, RN50, Job, assert_aborted, configuration_file

CONFIG = "config_TINY.sh"


def test_two_configurations_alternate_and_an_interrupted_run_is_made_again(tiny_environment, tmp_path):
    del tiny_environment["SEED"]
    tiny_environment["TARGET"] = "0.01"
    configuration_file(tmp_path / CONFIG, tiny_environment)
    command = [*RN50, "run", CONFIG, "--against", "LR=1.5", "--runs", "2", "-o", "out", "--json"]
    first, second = (tmp_path / "out" / name for name in ("TINY", "TINY+LR=1.5"))

    job = Job({}, command, tmp_path)
    job.until_logged(second / "result_1.txt", "run_start")
    job.signal_group(signal.SIGINT)
    assert job.wait(BUSY_S) == 128 + signal.SIGINT and not job.out
    assert "rn50: run 2 stopped by SIGINT; the same command again resumes there" in job.complaints
    assert_aborted(second / "result_1.txt")
    before = {folder: (folder / "result_0.txt").read_bytes() for folder in (first, second)}

    job = Job({}, command, tmp_path)
    status = job.wait(BUSY_S)
    told = json.loads(job.out)
    assert documented.differences("run --against", told) == [] and status in (0, 1), job.err
    assert {folder: (folder / "result_0.txt").read_bytes() for folder in (first, second)} == before
    order = [first / "result_0.txt", second / "result_0.txt", second / "result_1.txt", first / "result_1.txt"]
    assert sorted(order, key=lambda log: read_log(log).run_start_ms) == order
    assert ["LR", "2.0", "1.5"] in told["comparison"]["settings"]
    assert {row["ratio"]["rounds"] for row in told["pairs"]} == {2}
    assert sorted((tmp_path / "out").iterdir()) == [first, second]
