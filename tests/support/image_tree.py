"""Image folders in the ImageNet layout, made in a moment: a few pictures, each of which becomes many
different files."""

from tests.support.imagenet_like import numbered, pictures


def class_names(count):
    """Names in the form of WordNet ids, sorted."""
    return [f"n{1440764 + 37 * number:08d}" for number in range(count)]


def make(folder, classes=5, train=4, val=2, sizes=((40, 50), (50, 40), (33, 47)), flat=False):
    """``train`` and ``val`` images of each class; returns the label of every validation image by file
    name."""
    originals = pictures(sizes)
    number, truth = 0, {}
    for name, each in (("train", train), ("val", val)):
        for label, class_name in enumerate(class_names(classes)):
            home = folder / name / ("" if flat and name == "val" else class_name)
            home.mkdir(parents=True, exist_ok=True)
            for index in range(each):
                file = f"{class_name}_{index}.JPEG"
                if (
                    name == "val"
                ):  # scattered, as the official ones are: the order of names says nothing of the class
                    file = (
                        f"ILSVRC2012_val_{(index * classes + label) * 10007 % (val * classes) + 1:08d}.JPEG")
                    truth[file] = label
                (home / file).write_bytes(numbered(originals[number % len(originals)], number))
                number += 1
    return truth
