"""Read and write files of weights of a trained network: ``result_<N>.safetensors``.

The tensors are float32, with the names and shapes of ``rn50.benchmark.network.shapes``, so that every
framework can write and read a file. The header has facts about the network as texts (``FACTS``). The format
is safetensors, which holds numbers and no code, because a file may come from anybody. ``read`` also reads
files that other software has written, if an implementation knows the names of their tensors.
"""

import itertools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from rn50 import files, frameworks
from rn50.benchmark import network
from rn50.errors import UserError
from rn50.settings import named
from rn50.settings.fields import Data
from rn50.terminal import safe

LARGEST = 1 << 30
"""Largest size of a file, in bytes. A file of the benchmark's network has 102 million."""
SUFFIX = ".safetensors"
MODEL_SUFFIX, MODEL_BEGINS = ".onnx", b"\x08"
"""Ending of the name of an ONNX model, and its first byte, which in protobuf is the tag of its version."""
FACTS = {"classes": 100_000, "width": 16, "image_size": 4_096, "eval_resize": 4_096}
"""Facts that ``read`` needs from the header -> the largest value that it accepts. They are values of the
run's configuration. A network with BlurPool also has the fact blur_pool, 1. Of the other facts class_names
has a line for each class, label 0 first, and system is the name of the configuration, as DEMO_CPU+LR=1.
Further facts are for people: framework, precision, seed, epoch, accuracy, configuration, certificate."""
_LONGEST_NAME = 60
"""Most characters of the name of a class that are shown."""
_OTHER = "no weights of this network"
_REMEDY = "give a file that SAVE_WEIGHTS=1 or rn50 wrote"
_CONVERT = "save its tensors as safetensors: docs/after-training.md has the lines"


class Weights(NamedTuple):
    """The tensors of a network and the facts about it."""

    arrays: Mapping[str, np.ndarray]
    """Name of a tensor -> float32 array."""
    facts: Mapping[str, str]
    """Name of a fact -> value, as in the header of a file."""
    file: pathlib.Path | None = None
    """File that the weights were read from; None if they were not read from a file."""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.facts["classes"])

    @property
    def width(self) -> float:
        """The factor that multiplies every channel count; 1 in the benchmark."""
        return float(self.facts["width"])

    @property
    def image_size(self) -> int:
        """The side in pixels of the images on which the network was trained and evaluated."""
        return int(self.facts["image_size"])

    @property
    def eval_resize(self) -> int:
        """The shorter side in pixels to which an evaluation resizes before it cuts out the middle."""
        return int(self.facts["eval_resize"])

    def variables(self, data: Data) -> dict[str, str]:
        """Return the configuration variables WIDTH, IMAGE_SIZE and EVAL_RESIZE with the values of this
        network, which replace those of a configuration, and BLURPOOL if it has that, for the open division.

        Raises UserError if the network has another number of classes than the data set ``data``.
        """
        if self.classes != data.classes:
            problem = f"it tells {self.classes} classes apart, and the data set has NUMCLASSES={data.classes}"
            raise UserError(self.file or "weights", problem, "name the configuration of its data set")
        blurred = {"BLURPOOL": "1", "SUBMISSION_DIVISION": "open"} if "blur_pool" in self.facts else {}
        return blurred | {name: self.facts[name.lower()] for name in ("WIDTH", "IMAGE_SIZE", "EVAL_RESIZE")}


def class_names(facts: Mapping[str, str], classes: int) -> list[str]:
    """Return the names of the ``classes`` classes of a network, label 0 first: those in the facts of its file
    of weights or ONNX model. If these have not as many names, the labels are the names."""
    names = [safe(name)[:_LONGEST_NAME] for name in facts.get("class_names", "").split("\n")]
    return names if len(names) == classes else [str(label) for label in range(classes)]


def shown(facts: Mapping[str, str]) -> dict[str, str]:
    """Return facts by name, without the names of the classes, which may be 1,000, and without the version of
    rn50 that wrote the file."""
    return {name: facts[name] for name in sorted(facts) if name not in ("class_names", "file")}


def path(log: pathlib.Path) -> pathlib.Path:
    """Return the path of the file of weights beside the result file ``log``. The file need not exist."""
    return log.with_suffix(SUFFIX)


def only_one(file: pathlib.Path) -> pathlib.Path:
    """Return the only file of weights in a folder, without checkpoints; a path that is no folder is returned
    as it is. Raises UserError if there is no such file, or several."""
    if not file.is_dir():
        return file
    in_folder = sorted(path for path in file.glob(f"*{SUFFIX}") if len(path.suffixes) == 1)
    if len(in_folder) != 1:
        remedy = f"give one of them: {in_folder[0]}" if in_folder else _made_by(file / "weights")
        raise UserError(file, f"{len(in_folder)} {SUFFIX} files in it", remedy)
    return in_folder[0]


def is_model(file: pathlib.Path) -> bool:
    """Return True if a file is an ONNX model, False if it is a file of weights, by the ending of its name, or
    by its first byte if the ending is neither of the two.

    Raises UserError if this byte cannot be read.
    """
    if file.suffix in (SUFFIX, MODEL_SUFFIX):
        return file.suffix == MODEL_SUFFIX
    with files.open_regular(file, _REMEDY if file.exists() else _made_by(file)) as stream:
        return stream.read(1) == MODEL_BEGINS


def _made_by(file: pathlib.Path) -> str:
    """Return a remedy for a missing file: the command that makes weights of the system after which the folder
    of the file is named."""
    system = named.arguments(file.absolute().parent.name)
    return f"a run saves weights: rn50 run {system} -o results/weights --runs 1 --save-weights"


def write(file: pathlib.Path, weights: Weights) -> None:
    """Write a file of weights: all of it, or nothing. Raises UserError if it cannot be written."""
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.arrays.items()}
    content = safetensors_numpy.save(arrays, {"file": files.MARK, **weights.facts})
    files.write(file, content, files.NOTHING, "free the disk, or name another file")


def read(file: pathlib.Path, blur_pool: bool = False) -> Weights:
    """Read a file of weights that rn50 has written, or a foreign one, if an implementation knows the names of
    its tensors.

    Raises UserError if the file is neither, or if its tensors are not those of the network that its header
    describes, or have impossible values, or if the network has BlurPool and the caller does not compute that,
    as ``blur_pool`` says.
    """
    with files.open_regular(file, _REMEDY if file.exists() else _made_by(file)) as stream:
        if os.fstat(stream.fileno()).st_size > LARGEST:
            raise UserError(file, f"has more than {LARGEST:,} bytes", _REMEDY)
        try:
            # By its descriptor: this is the very file whose kind and size were checked.
            with safetensors.safe_open(f"/proc/self/fd/{stream.fileno()}", "np") as opened:
                facts = opened.metadata() or {}
                # A slice tells type and shape of a tensor without reading its values.
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 not a mapping
                # Only a file of rn50 has the fact "classes" in its header.
                foreign, prefix = (None, "") if "classes" in facts else _foreign(slices)
                if foreign:
                    classes = slices[prefix + foreign.CLASSIFIER].get_shape()[0]
                    facts = {**foreign.FACTS, "classes": str(classes)}
                    # Without the tensors that no evaluation reads: our network does not have them.
                    slices = {name: slices[name] for name in slices if not name.endswith(foreign.UNREAD)}
                refuse_other_facts(file, facts)
                if "blur_pool" in facts and not blur_pool:
                    remedy = "rn50 evaluate computes it; else train with BLURPOOL=0"
                    raise UserError(file, "its network has BlurPool, and an export has not", remedy)
                shapes = network.shapes(int(facts["classes"]), float(facts["width"]))
                name_in_file = {name: prefix + foreign.name(name) if foreign else name for name in shapes}
                expected = {name_in_file[name]: shape for name, shape in shapes.items()}
                _refuse_other_tensors(file, expected, slices)
                arrays = {name: opened.get_tensor(name_in_file[name]) for name in shapes}
        except (safetensors.SafetensorError, OSError) as error:
            if file.suffix == SUFFIX:
                raise UserError(file, f"no safetensors file ({error})", _REMEDY) from None
            raise UserError(file, "no safetensors file", _CONVERT) from None
    refuse_impossible(file, arrays, "train again: that run diverged")
    return Weights(arrays, facts, file)


def _foreign(slices: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the module ``weight_names`` of the implementation that knows the tensors of a foreign file, and
    the prefix that their names have in the file; None and no prefix if no implementation knows them.

    A module knows a file by the name of the classifier's weight, such as "fc.weight". In "model.fc.weight"
    the prefix is "model.": the network was saved as a part of another module.
    """
    # The shortest name first, because several may end like that of the classifier's weight.
    for framework, name in itertools.product(frameworks.names(), sorted(slices, key=len)):
        module = frameworks.unimported(framework, "weight_names")
        if module and f".{name}".endswith(f".{module.CLASSIFIER}"):
            return module, name.removesuffix(module.CLASSIFIER)
    return None, ""


def refuse_impossible(file: pathlib.Path, arrays: Mapping[str, np.ndarray], remedy: str) -> None:
    """Raise UserError with this remedy if a value is not finite, or a running variance is negative."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise UserError(file, f"{name} has values that are no finite numbers", remedy)
        if name.endswith("_running_var") and (array < 0).any():
            raise UserError(file, f"{name} has negative values, and is a variance", remedy)


def refuse_other_facts(file: files.Path, facts: Mapping[str, str]) -> None:
    """Raise UserError unless ``facts`` has all of ``FACTS``, as positive numbers within their bounds."""
    for name, largest in FACTS.items():
        # 224, 1.0 or 0.25: no sign and no exponent. Only the width may have decimals.
        value = facts.get(name, "nothing")
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,17})?", value) or not 0 < float(value) <= largest:
            raise UserError(file, f"{_OTHER} (its header says {value[:20]} of {name})", _REMEDY)
        if name != "width" and not value.isdecimal():
            problem = f"{_OTHER} (its header says {value} of {name}, no whole number)"
            raise UserError(file, problem, _REMEDY)


def _refuse_other_tensors(
    file: pathlib.Path, shapes: Mapping[str, tuple[int, ...]], slices: Mapping[str, Any]
) -> None:
    """Raise UserError unless the tensors of a file, ``slices``, have exactly the names and shapes ``shapes``,
    and are float32."""
    others = sorted(set(slices) - set(shapes))
    for name, shape in shapes.items():
        if name not in slices:
            instead = f", but {others[0][:60]}" if others else ""
            raise UserError(file, f"{_OTHER} (there is no {name}{instead})", _REMEDY)
        if slices[name].get_dtype() != "F32" or tuple(slices[name].get_shape()) != shape:
            has = f"{slices[name].get_dtype()} {slices[name].get_shape()}"
            problem = f"{name} is {has[:60]}; a network of its classes and width has F32 {list(shape)}"
            raise UserError(file, problem, _REMEDY)
    if others:
        raise UserError(file, f"{_OTHER} ({others[0][:60]} is none of its tensors)", _REMEDY)
