"""Labels of a flat validation folder, from the published lists in all their common forms.

A list has one line per image, in one of these forms, with or without a heading:

- a class: ``n01440764``, for the images in the order of their names;
- an image name and a class, or its index among the sorted classes: ``ILSVRC2012_val_00000001.JPEG n01751748``
  or ``... 65``, also separated by a comma and followed by more words, as in Kaggle's
  ``LOC_val_solution.csv``, or with the two exchanged;
- three columns, as in MXNet's ``.lst``: a key, the index of the class, the path of the image;
- the official ``ILSVRC2012_validation_ground_truth.txt``: an ILSVRC2012_ID of 1 to 1000, for the images in
  the order of their names. These IDs are not indices of the sorted classes: the development kit's
  ``meta.mat``, beside the list, maps them.

A list is read in every way that is possible, and refused if two of them give an image different classes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rn50.data.packing.packing_list import natural, read_lines
from rn50.errors import UserError, excerpt

OFFICIAL = Path("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
KAGGLES = Path("../../../LOC_val_solution.csv")
"""Kaggle's list, from its folder of images."""
META = "meta.mat"
_WORD = re.compile(r'[^\s,;"\ufeff]+')
"""A word of a list. Windows programs write U+FEFF before the first."""
_LARGEST_ORDER = 1 << 20
_FROM_0, _FROM_1, _BY_ID = "counted from 0", "counted from 1", "by ILSVRC2012_ID"
_SURE = "sort the images into class folders, or give a list with the name and the class of each image"

Lines = list[tuple[int, list[str]]]
"""Number and words of each line."""
Meanings = dict[str, dict[str, int]]
"""Ways to read words as classes, by name: the label of each word."""


def find(source: Path) -> Path | None:
    """Return the official list of a development kit unpacked in the source folder or beside it, or Kaggle's,
    if any."""
    places = source / OFFICIAL, source.parent / OFFICIAL, source / OFFICIAL.name, source / KAGGLES
    return next((path for path in places if path.is_file()), None)


def read(path: Path, names: Sequence[str], classes: Sequence[str], source: Path) -> dict[str, int]:
    """Return the label by file name, for sorted ``names`` of the validation folder and sorted ``classes`` of
    ``source``. Raises UserError."""
    by_word = {Path(name).stem: name for name in names} | {name: name for name in names}
    meanings = dict(_meanings(path, classes, source))
    vocabulary = {*by_word, *(word for labels in meanings.values() for word in labels)}
    numbered = enumerate(map(_WORD.findall, read_lines(path)), 1)
    lines = [(number, words) for number, words in numbered if words]
    if len(lines) == len(names) + 1 and vocabulary.isdisjoint(lines[0][1]):
        del lines[0]  # the heading
    if not lines:
        raise UserError(path, "empty", "give a list with a line for each validation image")
    if len(lines) != len(names):
        problem = f"has {len(lines):,} lines, and the validation folder {len(names):,} images"
        raise UserError(path, problem, "extract the archive again, or give the list that belongs to it")
    widths = {len(words) for _, words in lines}
    columns: list[tuple[str, int, Sequence[str]]]
    """How the images are known, the column of the classes, and the image of every line."""
    columns = [("", 0, names), (", images sorted by number", 0, sorted(names, key=natural))]
    if widths != {1}:
        pairs = [pair for pair in ((0, 1), (1, 0), (2, 1)) if pair[0] == 0 or widths == {pair[0] + 1}]
        columns = [(f", column {label + 1}", label, _images(lines, image, by_word)) for image, label in pairs]
    readings: list[tuple[str, dict[str, int]]] = []
    values: list[str] = []
    for how, column, images in columns:
        if set(images) == set(names):
            rest = (" ".join(words[column:]) for _, words in lines)  # the names of classes may have spaces
            values = [name if name in vocabulary else re.sub(r"\.0*$", "", name.split()[0]) for name in rest]
            for meaning, labels in meanings.items():
                # The official list beside its kit has IDs and nothing else.
                is_possible = meaning != _FROM_1 or widths != {1} or _BY_ID not in meanings
                if is_possible and labels.keys() >= set(values):
                    taken = [labels[value] for value in values]
                    readings.append((meaning + how, dict(zip(images, taken, strict=True))))
    # Nothing says the order of classes that are counted from 1, or without the names of images.
    unsure = (_FROM_1, _FROM_0) if widths == {1} else (_FROM_1,)
    if all(how.startswith(unsure) for how, _ in readings):
        raise _no_class(path, lines, values, meanings) if values else _no_image(path, lines, columns)
    how, truth = readings[0]
    for other_how, other in readings[1:]:
        if name := next((name for name in names if truth[name] != other[name]), ""):
            first, second = classes[truth[name]], classes[other[name]]
            problem = f"has two readings: {name} is of class {first} ({how}) or {second} ({other_how})"
            raise UserError(path, problem, _SURE)
    return truth


def _images(lines: Lines, column: int, by_word: Mapping[str, str]) -> list[str]:
    """Return the image that each line names in ``column``; empty without one."""
    paths = (Path(words[column] if column < len(words) > 1 else "") for _, words in lines)
    return [by_word.get(path.name) or by_word.get(path.stem, "") for path in paths]


def _meanings(path: Path, classes: Sequence[str], source: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield every way to read words as classes, and the label of each word."""
    labels = {name: label for label, name in enumerate(classes)}
    yield "by name", labels
    yield _FROM_0, {str(label): label for label in labels.values()}
    if ids := _ids(path):
        yield _BY_ID, {key: labels[name] for key, name in ids.items() if name in labels}
    yield _FROM_1, {str(label + 1): label for label in labels.values()}
    # Lists of the classes in another order, such as the wnids.txt of Tiny ImageNet.
    for file in sorted({*path.parent.glob("*.txt"), *source.glob("*.txt")}):
        if file.is_file() and file.stat().st_size < _LARGEST_ORDER and not file.samefile(path):
            order = [line.split()[0] for line in read_lines(file) if line.strip()]
            if sorted(order) == list(classes):
                yield f"by {file.name}", {str(place): labels[name] for place, name in enumerate(order)}


def _no_image(path: Path, lines: Lines, columns: list[tuple[str, int, Sequence[str]]]) -> UserError:
    """Return the first line that does not name one more image."""
    images = next((images for _, _, images in columns if images[0]), columns[0][2])
    first = {name: place for place, name in reversed([*enumerate(images)])}
    bad = next((place for place, name in enumerate(images) if not name or first[name] < place), 0)
    number, words = lines[bad]
    problem = f"line {number} is not about one more image of the validation folder: "
    return UserError(path, problem + excerpt(" ".join(words), 80), "give the list that belongs to it")


def _no_class(path: Path, lines: Lines, values: list[str], meanings: Meanings) -> UserError:
    """Return the first line that does not name a class, or why numbers do not."""
    if _BY_ID not in meanings and all(value.isdecimal() and int(value) > 0 for value in values):
        remedy = f"put the development kit's {META} beside it, or give a list with the class of each image"
        return UserError(path, "has ILSVRC2012_IDs, which are not labels", remedy)
    ids = _ids(path)
    named = {**meanings["by name"], **meanings.get(_BY_ID, meanings[_FROM_0])}
    for (number, _), value in zip(lines, values, strict=True):
        if value not in named:
            problem = f"line {number} names the class {ids.get(value, value)}, of which train/ has no folder"
            remedy = "extract its archive, or give the list that belongs to these classes"
            return UserError(path, problem, remedy)
    return UserError(path, "does not say for certain which class each image has", _SURE)


def _ids(path: Path) -> dict[str, str]:
    """Return the class by ILSVRC2012_ID, from the development kit; none without it."""
    meta = path.parent / META
    if not meta.is_file():
        return {}
    from scipy.io import loadmat

    try:
        synsets = loadmat(str(meta), squeeze_me=True)["synsets"]
        return {str(int(synset["ILSVRC2012_ID"])): str(synset["WNID"]) for synset in synsets}
    except Exception as error:  # scipy's parser raises many types for a damaged file
        problem = f"not the table of the development kit ({error})"
        raise UserError(meta, problem, "extract the kit again") from error
