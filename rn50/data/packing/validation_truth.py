"""Labels of a flat validation folder, from the published lists in all their common forms.

A list has one line per image, in one of these forms:

- a class: ``n01440764``, for the images in the order of their names;
- an image name and a class, or its index among the sorted classes: ``ILSVRC2012_val_00000001.JPEG n01751748``
  or ``... 65``, also separated by a comma and followed by more words, as in Kaggle's
  ``LOC_val_solution.csv``;
- the official ``ILSVRC2012_validation_ground_truth.txt``: an ILSVRC2012_ID of 1 to 1000, for the images in
  the order of their names. These IDs are not indices of the sorted classes: the development kit's
  ``meta.mat``, beside the list, maps them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from rn50.data.packing.packing_list import read_lines
from rn50.errors import UserError

OFFICIAL = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
_HEADING = "ImageId,PredictionString"


def find(source: Path) -> Path | None:
    """Return the official list of a development kit unpacked in the source folder or beside it, if any."""
    places = source / OFFICIAL, source.parent / OFFICIAL, source / Path(OFFICIAL).name
    return next((path for path in places if path.is_file()), None)


def read(path: Path, names: Sequence[str], classes: Sequence[str]) -> dict[str, int]:
    """Return the label by file name, for sorted ``names`` of a validation folder and sorted ``classes``.
    Raises UserError."""
    stripped = map(str.strip, read_lines(path))
    lines = [re.split(r"[\s,]+", line) for line in stripped if line not in ("", _HEADING)]
    if not lines:
        raise UserError(path, "empty", "give a list with a line for each validation image")
    if len(lines) != len(names):
        problem = f"has {len(lines):,} lines, and the validation folder {len(names):,} images"
        raise UserError(path, problem, "extract the archive again, or give the list that belongs to it")
    labels = {name: label for label, name in enumerate(classes)}
    if len(lines[0]) == 1:
        meaning = _ids(path) if lines[0][0].isdigit() else {}
        values = [meaning.get(words[0], words[0]) for words in lines]
        return {
            name: _label(path, number, value, labels)
            for number, (name, value) in enumerate(zip(names, values, strict=False), 1)
        }
    by_stem = {Path(name).stem: name for name in names}
    truth: dict[str, int] = {}
    for number, words in enumerate(lines, 1):
        name = by_stem.get(Path(words[0]).stem)
        if name is None or name in truth or len(words) < 2:
            line = " ".join(words)[:80]
            problem = f"line {number} is not about one more image of the validation folder: {line}"
            raise UserError(path, problem, "give the list that belongs to it")
        rank = int(words[1]) if words[1].isdigit() else -1
        truth[name] = rank if 0 <= rank < len(classes) else _label(path, number, words[1], labels)
    return truth


def _label(path: Path, number: int, name: str, labels: dict[str, int]) -> int:
    if name not in labels:
        problem = f"line {number} names the class {name}, of which train/ has no folder"
        raise UserError(path, problem, "extract its archive, or give the list that belongs to these classes")
    return labels[name]


def _ids(path: Path) -> dict[str, str]:
    """Return the class by ILSVRC2012_ID, from the development kit."""
    meta = path.parent / META
    if not meta.is_file():
        remedy = f"put the development kit's {META} beside it, or give a list with the class of each image"
        raise UserError(path, "has ILSVRC2012_IDs, which are not labels", remedy)
    from scipy.io import loadmat

    try:
        synsets = loadmat(str(meta), squeeze_me=True)["synsets"]
        return {str(int(synset["ILSVRC2012_ID"])): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # scipy's parser raises many types for a damaged file
        problem = f"not the table of the development kit ({error})"
        raise UserError(meta, problem, "extract the kit again") from error
