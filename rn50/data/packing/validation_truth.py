"""Labels of the images in a flat validation folder, read from a published list: ``read``, for ``rn50 pack``.

A list has one line per image, in one of these forms, with or without a heading:

- a class: ``n01440764``. The lines are in the order of the image names.
- an image name and a class, or the index of the class among the sorted classes:
  ``ILSVRC2012_val_00000001.JPEG n01751748`` or ``ILSVRC2012_val_00000001.JPEG 65``. The separator may be a
  comma, more words may follow, as in Kaggle's ``LOC_val_solution.csv``, and the class may come first.
- three columns, as in MXNet's ``.lst``: a key, the index of the class, the path of the image.
- the official ``ILSVRC2012_validation_ground_truth.txt``: an ILSVRC2012_ID of 1 to 1000. The lines are in the
  order of the image names. An ILSVRC2012_ID is not an index of the sorted classes: the development kit's
  ``meta.mat``, in the same folder as the list, has the class of each ID.

Nothing in a list says which form it has. It is read in every way that is possible, and refused if two ways
give an image different classes. A way consists of columns (those of the images and of the classes) and of a
meaning of the words in the column of the classes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rn50.data.packing.packing_list import natural, read_lines
from rn50.errors import UserError, excerpt

OFFICIAL = Path("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
KAGGLES = Path("../../../LOC_val_solution.csv")
"""Kaggle's list, relative to the folder with Kaggle's train/ and val/."""
META = "meta.mat"
_WORD = re.compile(r'[^\s,;"\ufeff]+')
"""A word of a list. Windows programs write U+FEFF before the first word of a file."""
_LARGEST_ORDER = 1 << 20
"""Size in bytes from which a file is not read as a list of the classes; 1000 WordNet IDs take 10 kB."""
_FROM_0, _FROM_1, _BY_ID = "counted from 0", "counted from 1", "by ILSVRC2012_ID"
"""Names of meanings of a word: the index of a class, the index plus 1, or an ILSVRC2012_ID."""
_SURE = "sort the images into class folders, or give a list with the name and the class of each image"

Lines = list[tuple[int, list[str]]]
"""The number of each line, from 1, and its words."""
Columns = tuple[str, int, Sequence[str]]
"""Columns as they may be meant: their name, the position of the column of the classes, and the image of each
line ("" if the line names none)."""
Meanings = dict[str, dict[str, int]]
"""Name of a meaning -> word -> label."""


def find(source: Path) -> Path | None:
    """Return the official list, if the development kit was unpacked in the source folder or beside it;
    Kaggle's list, if the source folder is Kaggle's; else None."""
    places = source / OFFICIAL, source.parent / OFFICIAL, source / OFFICIAL.name, source / KAGGLES
    return next((path for path in places if path.is_file()), None)


def read(path: Path, names: Sequence[str], classes: Sequence[str], source: Path) -> dict[str, int]:
    """Return file name -> label for the images of the validation folder, from the list ``path``.

    ``names`` are the sorted file names of the images, ``classes`` the sorted class names, and ``source`` is
    the folder with ``train`` and ``val``. Raises UserError if the list does not give each image one class.
    """
    # A word names an image with or without its suffix.
    name_of_word = {Path(name).stem: name for name in names} | {name: name for name in names}
    meanings = dict(_meanings(path, classes, source))
    vocabulary = {*name_of_word, *(word for labels in meanings.values() for word in labels)}
    lines = _lines(path, len(names), vocabulary)
    # First find the columns.
    has_classes_alone = all(len(words) == 1 for _, words in lines)
    if has_classes_alone:
        # The classes are in the order of the image names, sorted either as text or by the numbers in them.
        by_number = sorted(names, key=natural)
        columns: list[Columns] = [("", 0, names), (", images sorted by number", 0, by_number)]
    else:
        columns = list(_named_columns(lines, name_of_word))
    if has_classes_alone and _BY_ID in meanings:
        del meanings[_FROM_1]  # the numbers in the official list are IDs, not indices plus 1
    # Then collect the readings: combine the columns that name every image with the meanings that have a label
    # for every line.
    readings: list[tuple[str, dict[str, int]]] = []  # name of the way, and file name -> label
    class_words: list[str] = []  # of the last columns that name every image; empty: no columns do
    for columns_name, column, images in columns:
        # There are as many lines as images, so that each image is named once.
        if set(images) == set(names):
            # The class is the whole end of the line, if that is a class whose name has spaces, or else the
            # first word of the end. MXNet's .lst has 65.000000 for 65.
            ends = (" ".join(words[column:]) for _, words in lines)
            class_words = [end if end in vocabulary else re.sub(r"\.0*$", "", end.split()[0]) for end in ends]
            for meaning, labels in meanings.items():
                if labels.keys() >= set(class_words):
                    line_labels = [labels[word] for word in class_words]
                    readings.append((meaning + columns_name, dict(zip(images, line_labels, strict=True))))
    # Finally choose a reading. Indices mean the sorted classes for certain only if they are counted from 0
    # and stand beside image names: others may count the classes in another order.
    uncertain_ways = (_FROM_1, _FROM_0) if has_classes_alone else (_FROM_1,)
    if all(way.startswith(uncertain_ways) for way, _ in readings):  # also if there are no readings
        if not class_words:
            raise _no_image(path, lines, columns)
        raise _no_class(path, lines, class_words, meanings)
    way, truth = readings[0]
    # Further readings must give every image the same class.
    for other_way, other_truth in readings[1:]:
        if name := next((name for name in names if truth[name] != other_truth[name]), ""):
            first, second = classes[truth[name]], classes[other_truth[name]]
            problem = f"has two readings: {name} is of class {first} ({way}) or {second} ({other_way})"
            raise UserError(path, problem, _SURE)
    return truth


def _lines(path: Path, count: int, vocabulary: set[str]) -> Lines:
    """Return the lines of the list ``path`` that have words, without a heading. Raises UserError unless there
    are ``count`` lines. A heading has no word of ``vocabulary``, the words for images and classes."""
    numbered_lines = enumerate(map(_WORD.findall, read_lines(path)), 1)
    lines = [(number, words) for number, words in numbered_lines if words]
    if len(lines) == count + 1 and vocabulary.isdisjoint(lines[0][1]):
        del lines[0]  # the heading
    if not lines:
        raise UserError(path, "empty", "give a list with a line for each validation image")
    if len(lines) != count:
        problem = f"has {len(lines):,} lines, and the validation folder {count:,} images"
        raise UserError(path, problem, "extract the archive again, or give the list that belongs to it")
    return lines


def _named_columns(lines: Lines, names: Mapping[str, str]) -> Iterator[Columns]:
    """Yield the columns that lines with image names may have. ``names`` maps file names, with and without
    their suffix, to file names."""
    for image_column, class_column in ((0, 1), (1, 0), (2, 1)):
        # If the image comes first, more words may follow; else it is the last word of every line.
        if image_column == 0 or all(len(words) == image_column + 1 for _, words in lines):
            # A line of one word names no image, because the word is a class.
            paths = (Path(words[image_column] if len(words) > 1 else "") for _, words in lines)
            images = [names.get(path.name) or names.get(path.stem, "") for path in paths]
            yield f", column {class_column + 1}", class_column, images


def _meanings(path: Path, classes: Sequence[str], source: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each meaning that the words of the list ``path`` may have: its name, and word -> label.
    ``source`` is the folder with ``train`` and ``val``."""
    labels = {name: label for label, name in enumerate(classes)}
    yield "by name", labels
    yield _FROM_0, {str(label): label for label in labels.values()}
    if class_of_id := _classes_by_id(path):
        yield _BY_ID, {key: labels[name] for key, name in class_of_id.items() if name in labels}
    yield _FROM_1, {str(label + 1): label for label in labels.values()}
    # Files that list all classes in another order, such as the wnids.txt of Tiny ImageNet: a word may be the
    # position of a class in such a file.
    for file in sorted({*path.parent.glob("*.txt"), *source.glob("*.txt")}):
        if file.is_file() and file.stat().st_size < _LARGEST_ORDER and not file.samefile(path):
            order = [line.split()[0] for line in read_lines(file) if line.strip()]
            if sorted(order) == list(classes):
                yield f"by {file.name}", {str(position): labels[name] for position, name in enumerate(order)}


def _no_image(path: Path, lines: Lines, columns: list[Columns]) -> UserError:
    """Return the error for a list that does not name every image once. It quotes the first line that names no
    image, or an image that an earlier line names."""
    # The first columns with an image in the first line are taken for those that were meant.
    images = next((images for _, _, images in columns if images[0]), columns[0][2])
    # Image -> index of the first line that names it: in reversed order, an earlier line replaces a later one.
    first_line = {name: position for position, name in reversed([*enumerate(images)])}
    wrong_lines = [line for i, line in enumerate(lines) if not images[i] or first_line[images[i]] < i]
    number, words = (wrong_lines or lines)[0]
    problem = f"line {number} is not about one more image of the validation folder: "
    return UserError(path, problem + excerpt(" ".join(words), 80), "give the list that belongs to it")


def _no_class(path: Path, lines: Lines, class_words: list[str], meanings: Meanings) -> UserError:
    """Return the error for a list whose words do not denote classes: IDs without meta.mat, a class that is
    not in train/, or numbers of uncertain order. ``class_words`` has a word for each line."""
    if _BY_ID not in meanings and all(word.isdecimal() and int(word) > 0 for word in class_words):
        remedy = f"put the development kit's {META} beside it, or give a list with the class of each image"
        return UserError(path, "has ILSVRC2012_IDs, which are not labels", remedy)
    class_of_id = _classes_by_id(path)
    # Names of classes; besides, IDs if there is a meta.mat, else indices.
    allowed = {**meanings["by name"], **meanings.get(_BY_ID, meanings[_FROM_0])}
    for (number, _), word in zip(lines, class_words, strict=True):
        if word not in allowed:  # an ID is reported as the name of its class
            shown = class_of_id.get(word, word)
            problem = f"line {number} names the class {shown}, of which train/ has no folder"
            remedy = "extract its archive, or give the list that belongs to these classes"
            return UserError(path, problem, remedy)
    return UserError(path, "does not say for certain which class each image has", _SURE)


def _classes_by_id(path: Path) -> dict[str, str]:
    """Return ILSVRC2012_ID -> class name, from the development kit's meta.mat in the folder of the list
    ``path``; empty if there is none. Raises UserError for a damaged file."""
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
