"""``rn50 verify`` certifies a whole data set, and a run refuses data that do not match the certificate.

Processes: sha256sum and bash are the oracles.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import cv2
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from rn50 import files
from rn50.benchmark import rules
from rn50.cli import group
from rn50.data.certification import certificate
from rn50.data.certification.audit import AuditedSplit, audit
from rn50.data.certification.certify import certify
from rn50.data.certification.finding import KEPT, DataFindings
from rn50.data.jpeg import damage_of, has_end, read_header
from rn50.data.layout import CERTIFICATE, FILES, OPEN_ONLY
from rn50.data.packing import packing_list
from rn50.data.packing.pack import pack
from rn50.data.recordio import MAGIC, IndexedRecordWriter, encode_image
from rn50.errors import UserError
from rn50.launch import job
from rn50.run import agreement
from rn50.run.display import Display
from tests.conftest import with_changes
from tests.data.record_files import NUMBERS, Records, assert_found, flip, relabel
from tests.support.image_tree import class_names
from tests.support.imagenet_like import numbered, pictures, turned

pytestmark = pytest.mark.xdist_group("certification")
ROOT = Path(__file__).resolve().parents[2]


def test_a_whole_set_is_certified(small_set, data):
    calls = []
    verdict = certify(data, progress=lambda done, total: calls.append((done, total)))
    assert verdict.checked.passed and calls[-1] == (36, 36)
    content = json.loads((data / CERTIFICATE).read_text())
    assert {name: facts["sha256"] for name, facts in content["files"].items()} == {
        name: hashlib.sha256((small_set / name).read_bytes()).hexdigest() for name in FILES}
    printed = subprocess.run(["sha256sum", *FILES], cwd=data, stdout=subprocess.PIPE, check=True).stdout
    assert content["set_sha256"] == hashlib.sha256(printed).hexdigest()
    assert (content["classes"], content["train"], content["val"], content["imagenet"]) == (6, 24, 12, False)
    assert verdict.certificate.sha256 == hashlib.sha256((data / CERTIFICATE).read_bytes()).hexdigest()


def test_the_same_data_have_the_same_certificate_everywhere(small_set, data, tmp_path):
    other = shutil.copytree(str(small_set), str(tmp_path / "elsewhere")) and tmp_path / "elsewhere"
    assert certify(data, workers=1).certificate.sha256 == certify(other, workers=3).certificate.sha256
    again = certify(data).certificate
    assert again.sha256 == certificate.read(data).sha256


def test_full_decodes_every_image(data, bare):
    records = Records(data)
    image = bytearray(records.image(5))
    scan = image.index(b"\xff\xda")
    image[scan + 3] = 9  # components of the scan: no decoder takes that, and the chain of segments is whole
    records.all[5] = encode_image(5, records.label(5), bytes(image))
    records.write()
    assert certify(data, numbers=NUMBERS).checked.passed
    (data / CERTIFICATE).unlink()
    assert_found(certify(data, decode=True, numbers=NUMBERS), "train.rec", 5, "does not decode")


def test_the_known_oddities_of_imagenet_are_remarks(data, bare):
    records = Records(data)
    picture = np.random.RandomState(0).randint(0, 255, (40, 50, 4), np.uint8)
    Image.fromarray(picture, "CMYK").save(str(data / "cmyk.jpg"))
    cmyk = (data / "cmyk.jpg").read_bytes()
    png = cv2.imencode(".png", picture[:, :, :3])[1].tobytes()
    for at, image in (
        (3, cmyk), (4, png), (5, records.image(6)), (7, records.image(7).replace(b"\xff\xd9", b"")),
    ):
        records.all[at] = encode_image(at, records.label(at), image)
    records.write()
    verdict = certify(data, decode=True, numbers=NUMBERS)
    assert {(finding.kind, finding.file, finding.record) for finding in verdict.checked.remarks.kept} == {
        ("CMYK", "train.rec", 3), ("PNG", "train.rec", 4), ("duplicate", "train.rec", 6)}
    assert [finding.record for finding in verdict.checked.faults.kept] == [
        7
    ]  # no end-of-image marker: decoders call that truncated
    assert (
        verdict.checked.remarks.counts["CMYK"] == verdict.checked.remarks.counts["PNG"]
        == verdict.checked.remarks.counts["duplicate"] == 1)


@pytest.mark.parametrize("orientation, counted", [(1, 0), (3, 1), (6, 1), (8, 1), (0, 0), (9, 0)])
def test_images_that_are_to_be_turned_are_counted(bare, orientation, counted):
    records = Records(bare)
    records.all[5] = encode_image(5, records.label(5), turned(records.image(5), orientation))
    records.write()
    verdict = certify(bare, decode=True, numbers=NUMBERS, workers=1)
    assert verdict.checked.passed
    assert verdict.checked.remarks.counts.get("orientation", 0) == counted
    told = f"train.rec: record 5: has the EXIF orientation {orientation}; a run sees it as it is stored"
    assert [str(remark) for remark in verdict.checked.remarks.kept] == [told] * counted


def test_an_image_in_both_sets_is_named_with_both_labels(bare):
    train, val = Records(bare), Records(bare, "val")
    label = (val.label(3) + 1) % 6
    train.all[5] = encode_image(5, label, val.image(3))
    train.write()
    duplicates = [
        finding for finding in certify(bare, numbers=NUMBERS).checked.remarks.kept
        if finding.kind == "duplicate"]
    assert [(finding.file, finding.record) for finding in duplicates] == [("val.rec", 3)]
    assert (
        f"record 5 of train.rec, with label {val.label(3):g} here and {label:g} there" in duplicates[0].text)


def test_an_archive_that_was_unpacked_twice_is_a_fault(bare):
    records = Records(bare)
    records.all = [encode_image(key, records.label(key % 12), records.image(key % 12)) for key in range(24)]
    records.write()
    verdict = certify(bare, numbers=NUMBERS)
    assert "12 of all 36 images are there twice" in str(verdict.checked.faults.kept[-1])


def test_many_findings_of_a_kind_are_counted(bare):
    records = Records(bare)
    records.all = [encode_image(key, 0, b"no JPEG") for key in range(24)]
    records.write()
    faults = certify(bare, numbers=NUMBERS, workers=1).checked.faults
    assert (
        faults.counts["image"] == 24
        and len([finding for finding in faults.kept if finding.kind == "image"]) == KEPT)


def test_without_any_record_imagenet_is_expected(bare):
    verdict = certify(bare)
    assert f"1,281,143 fewer than the {rules.TRAIN_SAMPLES:,} of ImageNet" in " ".join(
        map(str, verdict.checked.faults.kept))


def test_classes_of_imagenet_have_their_numbers(monkeypatch, bare):
    monkeypatch.setattr(rules, "CLASSES", 6)
    monkeypatch.setattr(rules, "TRAIN_SAMPLES", 24)
    monkeypatch.setattr(rules, "EVAL_SAMPLES", 12)
    monkeypatch.setattr(
        "rn50.data.certification.certify.IMAGENET_PER_CLASS", {"train": (3, 5), "val": (2, 2)})
    assert certify(bare).certificate.content["imagenet"] is True
    (bare / CERTIFICATE).unlink()
    relabel((Records(bare, "val").label(5) + 1) % 6)(bare)  # of train: 3 and 5 images, which may be
    assert certify(bare).checked.passed
    (bare / CERTIFICATE).unlink()
    records = Records(bare, "val")
    records.all[5] = encode_image(5, (records.label(5) + 1) % 6, records.image(5))
    records.write()
    found = [finding.text for finding in certify(bare).checked.faults.kept if finding.file == "val.rec"]
    assert sorted(text.split(" has ")[1].split(",")[0] for text in found) == ["1 images", "3 images"]


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_one_line(data, name):
    (data / name).unlink()
    with pytest.raises(UserError, match=f"{name}: no such file; give a folder with"):
        certify(data)
    (data / name).mkdir()
    with pytest.raises(UserError, match=f"{name}: a folder, no file; give a folder with"):
        certify(data, write_index=True)


@pytest.mark.parametrize(
    "text, says",
    [("{", "no JSON"), ("[" * 99_999, "no JSON .nested"), ("[]", "damaged, it is no JSON object"),
     ('{"classes": NaN}', "no JSON"),
     ('{"passed": true, "classes": 2, "train": 1e99, "val": 1}', "damaged, it"),
     ('{"passed": true, "classes": 2, "train": 1, "val": 1, "files": []}',
      "damaged, it does not say what each file is"),
     ('{"passed": true, "classes": 2, "train": 1, "val": 1, "files": {"train.rec": 1}}',
      "damaged, it does not say")])
def test_a_damaged_certificate_is_one_line(data, text, says):
    (data / CERTIFICATE).write_text(text)
    for read in (certify, certificate.read):
        with pytest.raises(
            UserError, match=rf"{CERTIFICATE}: {says}.*; take it from another copy of the data, or delete it$"
        ):
            read(data)


@pytest.mark.parametrize("classes", ["true", "-1", "2.5", "null", '"2"'])
def test_a_certificate_whose_numbers_are_none(data, classes):
    (data / CERTIFICATE).write_text(f'{{"classes": {classes}, "train": 1, "val": 1, "files": {{}}}}')
    with pytest.raises(UserError, match=f"{CERTIFICATE}: damaged, it lacks the numbers of images"):
        certify(data)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(data):
    for name in (CERTIFICATE, "classes.txt", "pack.json"):
        (data / name).unlink(missing_ok=True)
        os.mkfifo(data / name)
        with pytest.raises(UserError, match=f"{name}: is a pipe, no regular file; take it from another copy"):
            certify(data)
        (data / name).unlink()


def test_an_index_is_read_once_and_its_hash_is_that_of_what_was_audited(data, monkeypatch):
    wanted, opened, open_regular = (
        hashlib.sha256((data / "val.idx").read_bytes()).hexdigest(), [], files.open_regular)

    def replaced_behind(path, *arguments):
        stream = open_regular(path, *arguments)
        opened.append(path.name)
        path.unlink()
        path.mkdir()
        return stream

    monkeypatch.setattr(files, "open_regular", replaced_behind)
    faults, split = DataFindings(), AuditedSplit(data, "val", 6)
    facts = audit(split, False, 1, lambda records: None, faults, DataFindings())
    assert opened == ["val.idx", "val.rec"]
    assert facts["val.idx"]["sha256"] == wanted and not faults.counts


def test_verifying_reads_each_index_once(data, monkeypatch):
    opened, open_regular = [], files.open_regular

    def counted(path, *arguments):
        opened.append(path.name)
        return open_regular(path, *arguments)

    monkeypatch.setattr(files, "open_regular", counted)
    assert certify(data).checked.passed
    assert [name for name in opened if name.endswith(".idx")] == ["train.idx", "val.idx"]


@pytest.mark.parametrize(
    "name, text",
    [("classes.txt", "..\nb\n"), ("classes.txt", "/tmp/x\nb\n"), ("train.tsv", "0\t0\t00\ta/..\n"),
     ("train.tsv", "0\t0\t00\t/a/b\n")])
def test_no_name_of_a_list_leaves_its_folder(data, name, text):
    (data / name).write_text(text)
    with pytest.raises(UserError, match=f"{name}: (line 1 is not|.* is not a folder name)"):
        packing_list.read_classes(data) if name == "classes.txt" else packing_list.read_list(data, "train")


@pytest.mark.parametrize("record", [{"lists": []}, {"lists": {"../../x": "00"}}, {"source": 1}])
def test_a_record_of_another_shape_is_one_line(data, record):
    (data / "pack.json").write_text(json.dumps({"classes": 2, "train": 1, "val": 1, **record}))
    with pytest.raises(
        UserError, match="pack.json: damaged, not what rn50 pack writes; take it from another copy"
    ):
        certify(data)


def test_records_in_parts_are_verified(tmp_path):
    jpegs = [numbered(pictures([(40, 50)])[0], number) for number in range(12)]
    for name in ("train", "val"):
        with IndexedRecordWriter(tmp_path / name) as writer:
            for key, jpeg in enumerate(jpegs):
                writer.write(key, key % 2, jpeg + b"x" * (-len(jpeg) % 4) + MAGIC * 2 + b"x" + name.encode())
    assert certify(tmp_path, numbers={"classes": 2, "train": 12, "val": 12}, decode=True).checked.passed


@pytest.fixture
def configured(tiny_config, data):
    """A configuration of the packed set, which is certified."""
    certify(data)
    return with_changes(
        tiny_config, data={"folder": str(data), "classes": 6, "train_samples": 24, "eval_samples": 12})


def test_a_run_takes_data_that_match(configured, data):
    assert (
        certificate.check(configured).sha256 == hashlib.sha256((data / CERTIFICATE).read_bytes()).hexdigest())
    (data / CERTIFICATE).unlink()
    assert certificate.check(configured) is None


@pytest.mark.parametrize(
    "field, value, has",
    [("classes", 7, "7 classes, 24 + 12 images"), ("train_samples", 25, "6 classes, 25 + 12 images"),
     ("eval_samples", 11, "6 classes, 24 + 11 images")])
@pytest.mark.parametrize("by", [CERTIFICATE, "pack.json"])
def test_a_run_refuses_data_that_do_not_match_and_names_every_value(configured, data, field, value, has, by):
    if by == "pack.json":
        (data / CERTIFICATE).unlink()
    values = "give --set NUMCLASSES=6 --set NUMEXAMPLES=24 --set NUMVALEXAMPLES=12, or set DATADIR"
    says = re.escape(f"/{by}: 6 classes, 24 + 12 images, but the configuration has {has}; {values}")
    with pytest.raises(UserError, match=says):
        certificate.check(with_changes(configured, data={field: value}))


@pytest.mark.parametrize("lost", [(), (OPEN_ONLY,), (OPEN_ONLY, CERTIFICATE), (OPEN_ONLY, "pack.json")])
def test_the_closed_division_refuses_images_that_were_resized(
    configured, small_set, data, tmp_path, lost
):
    pack(small_set.parent / "source", tmp_path / "smaller", workers=1, short_side=36)
    verdict = certify(tmp_path / "smaller")
    assert verdict.certificate.content["short_side"] == verdict.checked.short_side == 36
    assert "short_side" not in certificate.read(data).content
    for name in lost:
        (tmp_path / "smaller" / name).unlink()
    open_division, closed = (
        with_changes(configured, data={"folder": str(tmp_path / "smaller")}, run={"division": division})
        for division in ("open", "closed"))
    refusal = "smaller: holds resized images, and the closed division resizes no image before the clock; set "
    with pytest.raises(UserError, match=refusal + "SUBMISSION_DIVISION=open, or DATADIR to images packed"):
        certificate.check(closed)
    if not lost:  # before the clock, while no file may be opened
        with pytest.raises(UserError, match=refusal):
            job.launch(closed)
    assert (certificate.check(open_division) is None) == (CERTIFICATE in lost)
    communicator = types.SimpleNamespace(rank=0, size=1, all_reduce=lambda array: array)
    assert agreement.on_certificate(open_division, communicator, Display())["short_side"] == 36


def test_a_run_refuses_files_that_changed(configured, data):
    with (data / "val.rec").open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(
        UserError, match=r"val\.rec: has \d+ bytes, and \d+ when it was certified; .*rn50 verify"
    ):
        certificate.check(configured)


def test_a_run_refuses_data_at_fault(configured, data):
    flip(700)(data)
    assert not certify(data).checked.passed
    with pytest.raises(
        UserError, match=rf"{CERTIFICATE}: rn50 verify found these data at fault; run rn50 verify"
    ):
        certificate.check(configured)


def test_the_command_says_what_it_found_and_exits_1(data):
    def run(*options):
        return subprocess.run(
            [sys.executable, "-m", "rn50", "verify", str(data), *options], cwd=ROOT, capture_output=True,
            text=True)

    done = run()
    assert (
        done.returncode == 0
        and "whole: 24 + 12 images of 6 classes (as pack.json says; not the benchmark" in done.stdout)
    flip(700)(data)
    done = run()
    assert (
        done.returncode == 1
        and "FAULT  train.rec: record 5: the image is not the one that was packed" in done.stdout)
    done = run("--json")
    assert done.returncode == 1 and json.loads(done.stdout)["faults"]["counts"] == {
        "content": 1, "changed": 1}
    shutil.rmtree(str(data))
    done = run()
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def on_a_read_only_disk(monkeypatch, folder):
    real = os.open

    def refused(path, flags, *mode, **options):
        if flags & os.O_CREAT and folder in Path(path).parents:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", refused)


@pytest.mark.parametrize("at_fault", [False, True])
def test_what_was_found_on_a_read_only_disk_is_printed_and_is_the_status(data, monkeypatch, at_fault):
    if at_fault:
        flip(700)(data)
    on_a_read_only_disk(monkeypatch, data)
    done = CliRunner().invoke(group.main, ["verify", str(data)])
    assert done.exit_code == at_fault and not (data / CERTIFICATE).exists()
    assert ("at fault: 1 faults" if at_fault else "whole: 24 + 12 images of 6 classes") in done.output
    (line,) = [line for line in done.output.splitlines() if CERTIFICATE in line]
    assert line.startswith(f"{data / CERTIFICATE}: cannot be written (Read-only file system); to keep it, ")
    done = CliRunner().invoke(group.main, ["verify", str(data), "--json"])
    assert done.exit_code == at_fault
    printed = json.loads(done.output[done.output.index("{") : done.output.rindex("\n}") + 2])
    assert printed["certificate"] is None and printed["passed"] is not at_fault and printed["sha256"]


def test_the_place_that_is_told_for_a_certificate_keeps_it(data, monkeypatch, tmp_path, configured):
    (data / CERTIFICATE).unlink()
    (data / "notes.md").write_text("of somebody")
    on_a_read_only_disk(monkeypatch, data)
    refused = certify(data, workers=1).certificate
    commands = refused.not_kept.split("name then: ")[1]
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True)
    kept = certify(tmp_path / "NEW", workers=1).certificate
    assert (tmp_path / "NEW" / CERTIFICATE).is_file() and kept.sha256 == refused.sha256
    linked = with_changes(configured, data={"folder": str(tmp_path / "NEW")})
    assert certificate.check(linked).sha256 == kept.sha256


@pytest.mark.parametrize("quality", [30, 95])
def test_headers_of_every_kind_are_read(quality):
    picture = np.random.RandomState(0).randint(0, 255, (40, 50, 3), np.uint8)
    for options in ([], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_RST_INTERVAL, 2]):
        jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality, *options])[1].tobytes()
        assert (
            read_header(jpeg) == (None, False, 3, jpeg.index(b"\xff\xda") + 2)
            and damage_of(jpeg, decode=True) is None)
        assert has_end(jpeg + bytes(100), read_header(jpeg))
        for kept in (0.4, 0.7, 0.9):
            cut = jpeg[: int(len(jpeg) * kept)]
            assert not has_end(cut, read_header(cut)) and damage_of(cut).startswith("does not decode")
    grey = cv2.imencode(".jpg", picture[:, :, 0])[1].tobytes()
    assert read_header(grey).components == 1
    assert class_names(2) == sorted(class_names(2))
