"""certificate.json: the result of ``rn50 verify``. ``certify.py`` writes it; a run reads it and checks that
its configuration and files agree with it.

The certificate contains no date and no path, so that equal data have equal certificates on all machines.
"""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from rn50 import files
from rn50.benchmark import rules
from rn50.data import preflight
from rn50.data.layout import CERTIFICATE, DEMO_CLASSES, DEMO_RECORD, FILES, OPEN_ONLY, PACK_RECORD, PACKED
from rn50.data.packing import packing_list
from rn50.errors import UserError
from rn50.settings.config import Config

FORMAT = 1
"""Version of the certificate's structure."""
NO_RECORD = "ImageNet"
"""Origin of the expectation if no file of a data set states its numbers."""


class Certificate(NamedTuple):
    """A certificate that was read or written."""

    path: Path | None
    """File of the certificate; null: it could not be written."""
    content: dict[str, Any]
    sha256: str
    """SHA-256 of the certificate, by which a log names the data."""
    not_kept: str = ""
    """Reason why the certificate could not be written, and how to keep it elsewhere; empty: it was
    written."""

    def summary(self) -> dict[str, Any]:
        """Return the part of the certificate that is saved in the JSON file beside a log."""
        keys = ("imagenet", "decoded", "classes", "train", "val", "short_side", "set_sha256")
        return {"sha256": self.sha256, **{key: self.content.get(key) for key in keys}}


class ExpectedData(NamedTuple):
    """The expected numbers and files of a data set."""

    classes: int
    train: int
    val: int
    files: dict[str, dict[str, Any]]
    """File name -> {"bytes": size, "sha256": hash}; empty: no earlier record states them."""
    by: str
    """Origin of the expectation: the name of a file, such as "certificate.json", or ``NO_RECORD``."""
    short_side: int | None = None
    """Pixels to which ``rn50 pack --short-side`` reduced the shorter side of larger images; None: the file
    ``by`` does not tell that they were reduced."""

    @property
    def is_imagenet(self) -> bool:
        """True if the numbers of classes and images are those of the benchmark."""
        numbers = self.classes, self.train, self.val
        return numbers == (rules.CLASSES, rules.TRAIN_SAMPLES, rules.EVAL_SAMPLES)


def expected(folder: Path) -> ExpectedData:
    """Return the numbers and files that are expected of the data set in ``folder``.

    They come from the first of these files that exists: an earlier certificate, pack.json, the record of the
    demo data set. Without any, the numbers are ImageNet's. Raises UserError for a damaged file.
    """
    for name in (CERTIFICATE, PACK_RECORD, DEMO_RECORD):
        record = packing_list.read_json(folder / name)
        if record is not None:
            record.setdefault("classes", len(DEMO_CLASSES) if name == DEMO_RECORD else None)
            counts: list[Any] = [record.get(key) for key in ("classes", "train", "val")]
            # ``type`` and not ``isinstance``, for which True is an int.
            if any(type(count) is not int or count < 0 for count in counts):
                raise _damaged(folder / name, "it lacks the numbers of images")
            classes, train, val = counts
            facts = _facts(folder / name, record)
            return ExpectedData(classes, train, val, facts, name, record.get("short_side"))
    return ExpectedData(rules.CLASSES, rules.TRAIN_SAMPLES, rules.EVAL_SAMPLES, {}, NO_RECORD)


def _facts(path: Path, content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return "files" of ``content``, the JSON object in ``path``: file name -> facts about the file. Raises
    UserError if it has another structure."""
    facts = content.get("files", {})
    if not isinstance(facts, dict) or not all(isinstance(fact, dict) for fact in facts.values()):
        raise _damaged(path, "it does not say what each file is")
    return facts


def _damaged(path: Path, reason: str) -> UserError:
    """Return the error for a certificate or another record of the data set that cannot be used."""
    return UserError(path, f"damaged, {reason}", "take it from another copy of the data, or delete it")


def set_sha256(files: dict[str, dict[str, Any]]) -> str:
    """Return one hash of all four files: the SHA-256 of the output of ``sha256sum train.rec train.idx val.rec
    val.idx``."""
    lines = "".join(f"{files[name]['sha256']}  {name}\n" for name in FILES)
    return hashlib.sha256(lines.encode()).hexdigest()


def write(folder: Path, content: dict[str, Any]) -> Certificate:
    """Write the certificate to certificate.json in ``folder``, atomically, and return it. If the file cannot
    be written, the certificate that is returned has no path, and the reason in ``not_kept``."""
    path = folder / CERTIFICATE
    text = (json.dumps(dict(content, format=FORMAT), indent=1, sort_keys=True) + "\n").encode()
    present = (name for name in (*FILES, *PACKED, DEMO_RECORD, OPEN_ONLY) if (folder / name).exists())
    # "mkdir NEW && ln -s /data/imagenet/{train.rec,train.idx,val.rec,val.idx} NEW"
    links = f"mkdir NEW && ln -s {shlex.quote(str(folder.resolve()))}/{{{','.join(present)}}} NEW"
    remedy = f"to keep it, verify a folder of links to the data, which DATADIR may name then: {links}"
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        files.write(path, text, files.ANY, remedy)
    except UserError as error:
        return Certificate(None, content, sha256, str(error))
    return Certificate(path, content, sha256)


def read(folder: Path) -> Certificate | None:
    """Return the certificate of a data folder, or None if it has none. Raises UserError for a damaged one.

    A run calls this function after its clock has started, because no file of the data set, such as the
    certificate, may be opened earlier.
    """
    path = folder / CERTIFICATE
    content = packing_list.read_json(path)
    if content is None:
        return None
    has_hashes = set(FILES) <= set(_facts(path, content)) and isinstance(content.get("set_sha256"), str)
    # The certificate of data at fault need not have all hashes, because a file may be missing.
    if content.get("passed") is True and not has_hashes:
        raise _damaged(path, "it does not say what each file is")
    return Certificate(path, content, files.sha256(path))


def refuse_other_numbers(config: Config) -> None:
    """Raise UserError if a file of the data set states other numbers of classes and images than ``config``
    has. The remedy names all three options ``--set`` that the data set needs."""
    data, stated = config.data, expected(Path(config.data.folder))
    numbers = stated.classes, stated.train, stated.val
    configured = data.classes, data.train_samples, data.eval_samples
    if stated.by != NO_RECORD and numbers != configured:
        in_data, in_config = map("{0[0]:,} classes, {0[1]:,} + {0[2]:,} images".format, (numbers, configured))
        options = "--set NUMCLASSES={} --set NUMEXAMPLES={} --set NUMVALEXAMPLES={}".format(*numbers)
        remedy = f"give {options}, or set DATADIR to the data that are meant"
        raise UserError(
            Path(data.folder) / stated.by, f"{in_data}, but the configuration has {in_config}", remedy
        )


def check(config: Config) -> Certificate | None:
    """Return the certificate of the data that ``config`` names, or None if there is none.

    Raises UserError if the certificate contradicts the configuration or the files, or reports faults, and if
    the division is closed and the images were resized. Only the sizes of the files are compared, not their
    hashes, so that the check takes milliseconds.
    """
    folder = Path(config.data.folder)
    preflight.refuse_resized(config, expected(folder).short_side)
    certificate = read(folder)
    verify_again = f"run rn50 verify {folder}"
    if certificate and certificate.content.get("passed") is not True:
        problem = "rn50 verify found these data at fault"
        raise UserError(certificate.path, problem, f"{verify_again}, which says where and what to do")
    refuse_other_numbers(config)
    if certificate is None:
        return None
    content = certificate.content
    for name in FILES:
        certified = content["files"][name].get("bytes")
        size = (folder / name).stat().st_size
        if size != certified:
            problem = f"has {size} bytes, and {certified} when it was certified"
            raise UserError(folder / name, problem, f"copy or pack it again, or {verify_again}")
    return certificate
