"""The demo data set (``rn50 demo-data``): generated shapes of ten classes as JPEGs in RecordIO. Any machine
generates it within seconds, yet a network does not learn it trivially.

``images.py`` draws an image; this file packs the images of both splits with worker processes. The files are
the same for any number of processes.
"""

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import cv2

from rn50 import files
from rn50.data.certification.certify import certify
from rn50.data.demo.images import GENERATOR_VERSION, STREAMS, Rng, encode
from rn50.data.layout import CERTIFICATE, DEMO_RECORD, FILES
from rn50.data.recordio import IndexedRecordWriter
from rn50.data.workers import Processes, in_order, writing
from rn50.errors import UserError
from rn50.progress import Progress, silent

PARTIAL = ".demo_dataset.partial"
"""Hidden folder in which the files are written before they are moved to their final names."""
ORDER_STREAM = 100
"""The random stream that shuffles the records of a split has the number of the split's own stream plus this
number."""
CHUNK = 64
"""Number of images of a task of a worker process."""


class Generated(NamedTuple):
    """A demo data set."""

    folder: Path
    """Folder of the data set."""
    seed: int
    """Seed of the images."""
    split: str
    """Split of the validation images: val, or tune with `--tune`."""
    scale: int
    """Factor of `--scale`."""


class Settings(NamedTuple):
    """The settings that determine the images of a demo data set, 19 MB by default."""

    seed: int = 0
    """In [0, 2**32)."""
    train: int = 6_000
    """Number of training images."""
    val: int = 2_000
    """Number of validation images."""
    val_split: str = "val"
    """Split of ``images.py`` for the validation images: "val", or "tune" for choosing hyperparameters."""
    scale: int = 1
    """Factor by which the sides of every image are multiplied."""


def _encode_chunk(settings: Settings, split: str, indices: list[int]) -> list[tuple[int, bytes]]:
    """Return label and JPEG of the images ``indices`` of a split: a task of a worker process."""
    cv2.setNumThreads(1)  # each core has a process already
    return [encode(settings.seed, split, index, settings.scale) for index in indices]


def _write(folder: Path, settings: Settings, workers: int, progress: Progress) -> None:
    """Write train.rec/.idx, val.rec/.idx and the record of the settings into ``folder``."""
    done = 0
    with Processes(workers) as processes:
        # (name of the files, split of ``images.py``, number of images)
        splits = ("train", "train", settings.train), ("val", settings.val_split, settings.val)
        for name, split, count in splits:
            # Shuffled: in the order of their indices the images have the labels 0 to 9 again and again.
            order = Rng([settings.seed, ORDER_STREAM + STREAMS[split]]).permutation(count).tolist()
            chunks = [order[start : start + CHUNK] for start in range(0, count, CHUNK)]
            futures = (processes.submit(_encode_chunk, settings, split, chunk) for chunk in chunks)
            # At most two tasks for each process are submitted at a time.
            images = itertools.chain.from_iterable(in_order(futures, 2 * workers))
            with IndexedRecordWriter(folder / name) as writer:
                for key, (label, image) in enumerate(images):
                    writer.write(key, label, image)
                    done += 1
                    progress(done, settings.train + settings.val)
    manifest: dict[str, object] = {"generator_version": GENERATOR_VERSION, **settings._asdict()}
    manifest["files"] = {name: _fingerprint(folder / name) for name in FILES}
    (folder / DEMO_RECORD).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _fingerprint(path: Path) -> dict[str, int | str]:
    """Return size and SHA-256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": files.sha256(path)}


def _is_finished(folder: Path, settings: Settings) -> bool:
    """Return whether ``folder`` holds all files of the data set with these settings; False if some of them,
    or all, are missing. Raises UserError if other data would be overwritten, or if a file was changed."""
    present = [name for name in FILES if (folder / name).exists()]
    manifest = folder / DEMO_RECORD
    if not manifest.exists():
        if present:
            problem = "is there already and no demo data set"
            raise UserError(folder / present[0], problem, "choose another folder")
        return False
    remedy = f"choose another folder or delete {folder}"
    recorded = files.read_json(manifest, remedy=remedy)
    fingerprints = recorded.get("files") if isinstance(recorded, dict) else None
    if not isinstance(fingerprints, dict):
        raise UserError(manifest, "not the record of a demo data set", remedy)
    expected = {"generator_version": GENERATOR_VERSION, **settings._asdict()}
    if changed := [key for key in expected if recorded.get(key) != expected[key]]:
        differences = ", ".join(f"{key} {recorded.get(key)} instead of {expected[key]}" for key in changed)
        problem = f"a demo data set of other settings ({differences})"
        raise UserError(manifest, problem, "choose another folder or delete this one")
    for name in present:
        if fingerprints.get(name) != _fingerprint(folder / name):
            remedy = f"delete {folder} and generate it again"
            raise UserError(folder / name, "was changed since it was generated", remedy)
    return len(present) == len(FILES)


def generate(
    folder: str | Path, settings: Settings, workers: int | None = None, progress: Progress = silent
) -> None:
    """Generate train.rec/.idx and val.rec/.idx in ``folder``, with the record of the settings and the
    certificate.

    ``workers`` is the number of processes, by default one for each core that this process may use; it does
    not change the files. ``progress(done, total)`` is called after every image.

    Returns at once if ``folder`` already holds the data set with these settings, and generates it again if
    files of it are missing. The files appear under their final names only when all are written. Raises
    ``UserError`` if the folder holds other data, the disk is full, or a worker process was killed.
    """
    folder = Path(folder)
    if not (0 <= settings.seed < 2**32 and min(settings.train, settings.val, settings.scale) > 0):
        limits = "a seed in [0, 2**32), an image or more to train and to validate, and a scale of at least 1"
        raise UserError(f"a demo data set has {limits}, not {settings._asdict()}")
    partial = folder / PARTIAL
    remedy = "free space or choose another folder"
    with writing(folder, "generating a data set", remedy, "end other programs and generate again"):
        if not _is_finished(folder, settings):
            shutil.rmtree(partial, ignore_errors=True)  # a process that was killed may have left it behind
            try:
                partial.mkdir()
                _write(partial, settings, workers or len(os.sched_getaffinity(0)), progress)
                # A certificate in the folder may be that of earlier files.
                (folder / CERTIFICATE).unlink(missing_ok=True)
                # The record is moved first, because it identifies the files if the next moves do not happen.
                for name in (DEMO_RECORD, *FILES):
                    os.replace(partial / name, folder / name)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        # ``certify`` checks the files and writes the certificate; ``not_kept`` says why it was not written.
        if not (folder / CERTIFICATE).exists() and (not_kept := certify(folder).certificate.not_kept):
            raise UserError(not_kept)
