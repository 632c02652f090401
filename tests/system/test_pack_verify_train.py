"""From an image folder of ImageNet's shape to a run: pack, verify, train, and what log and report say of the
data."""

import json
import shutil
import subprocess

import pytest

from rn50 import files
from rn50.benchmark import rules
from rn50.results.parse import read_log
from tests.support import imagenet_like
from tests.support.image_tree import make
from tests.system.job import BUSY_S, RN50, ROOT, assert_aborted, events

TARGET_MISSED = 3
USER_CAN_MEND = 2


def rn50(*arguments):
    return subprocess.run([*RN50, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """1000 classes, 2,000 + 1,000 images of about 110 KB, packed and verified by the commands."""
    folder = tmp_path_factory.mktemp("imagenet")
    make(folder / "source", classes=rules.CLASSES, train=2, val=1, sizes=imagenet_like.SIZES)
    packed = rn50("pack", folder / "source", folder / "data")
    assert packed.returncode == 0 and "2,000 + 1,000 images of 1,000 classes" in packed.stdout, packed.stderr
    assert sum(path.stat().st_size for path in (folder / "data").glob("*.rec")) > 3000 * 90_000
    shutil.rmtree(str(folder / "source"))
    verified = rn50("verify", folder / "data", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["sha256"] == files.sha256(folder / "data" / "certificate.json")
    yield folder / "data"
    shutil.rmtree(str(folder))


@pytest.fixture
def train(start, imagenet):
    """A run of one epoch on these data; variables may be changed."""

    def started(**changes):
        return start(
            **{
                "DATADIR": str(imagenet), "NUMEXAMPLES": "2000", "NUMVALEXAMPLES": "1000",
                "NUMCLASSES": "1000", "BATCHSIZE": "100", "NUMEPOCHS": "1", "WARMUP_EPOCHS": "0", **changes})

    return started


def test_a_run_logs_and_saves_the_hash_of_the_certificate(train, results, imagenet):
    job = train(NUMEPOCHS="2")
    assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    assert "no certificate.json" not in job.err
    logged = {event["key"]: event for event in events(results / "result_1.txt")}
    sha256 = files.sha256(imagenet / "certificate.json")
    set_sha256 = json.loads((imagenet / "certificate.json").read_text())["set_sha256"]
    for key, samples in (("train_samples", 2000), ("eval_samples", 1000)):
        assert logged[key]["value"] == samples
        metadata = logged[key]["metadata"]
        assert (metadata["certificate_sha256"], metadata["data_set_sha256"]) == (sha256, set_sha256)
    saved = json.loads((results / "result_1.json").read_text())
    assert saved["seed"] == 7 and saved["data certificate"]["sha256"] == sha256
    shown = rn50(
        "report", results / "result_1.txt", "--ruleset", "4.0.0", "--output", results / "report.html")
    assert shown.returncode == 0, shown.stderr
    page = (results / "report.html").read_text()
    assert "data certificate" in page and f"<td>sha256<td>{sha256}" in page


def test_a_run_without_certificate_goes_on_and_says_so(train, results, imagenet):
    hidden = imagenet / "hidden"
    (imagenet / "certificate.json").rename(hidden)
    try:
        job = train(BENCHMARK_STEPS="1")
        assert job.wait(BUSY_S) == TARGET_MISSED, job.err
    finally:
        hidden.rename(imagenet / "certificate.json")
    assert f"no certificate.json in {imagenet}; rn50 verify {imagenet} looks at every image" in job.err
    logged = {event["key"]: event for event in events(results / "result_1.txt")}
    assert "certificate_sha256" not in logged["train_samples"]["metadata"]
    # Rates of a run whose epochs are cut count the images that it trained on.
    assert read_log(results / "result_1.txt").epoch_samples == logged["global_batch_size"]["value"]
    assert logged["train_samples"]["value"] > logged["global_batch_size"]["value"]


def test_a_run_refuses_data_that_do_not_match_its_configuration(train, results):
    job = train(NUMCLASSES="1001")
    assert job.wait(120) == USER_CAN_MEND
    numbers = "1,000 classes, 2,000 + 1,000 images, but the configuration has 1,001 classes, 2,000 + 1,000"
    assert f"certificate.json: {numbers} images; give --set NUMCLASSES=1000 --set NUM" in job.complaint
    assert_aborted(results / "result_1.txt")


def test_a_run_refuses_data_at_fault(train, results, imagenet):
    whole = (imagenet / "certificate.json").read_bytes()
    try:
        with (imagenet / "val.rec").open("r+b") as stream:
            stream.seek(50_000)
            byte = stream.read(1)
            stream.seek(50_000)
            stream.write(bytes([byte[0] ^ 1]))
        verified = rn50("verify", imagenet)
        assert (
            verified.returncode == 1
            and "FAULT  val.rec: record 0: the image is not the one" in verified.stdout)
        job = train()
        assert job.wait(120) == USER_CAN_MEND
        assert "certificate.json: rn50 verify found these data at fault" in job.complaint
        assert_aborted(results / "result_1.txt")
    finally:
        with (imagenet / "val.rec").open("r+b") as stream:
            stream.seek(50_000)
            stream.write(byte)
        (imagenet / "certificate.json").write_bytes(whole)
