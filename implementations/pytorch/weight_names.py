"""Names of the weights of torchvision's ResNet-50. It is the network of the benchmark (v1.5), and its input
is normalised in the same way. Imports no PyTorch."""

import re

FACTS = {"width": "1", "image_size": "224", "eval_resize": "256", "framework": "torchvision"}
"""Facts that its files do not contain; see ``rn50.weights.weights_file.FACTS``."""
CLASSIFIER = "fc.weight"
"""Tensor that identifies such a file; its first dimension is the number of classes."""
UNREAD = ".num_batches_tracked"
"""Suffix of the names of tensors that no evaluation reads."""


def name(ours: str) -> str:
    """Return torchvision's name of a tensor: ``layer1.0.bn2.bias`` for ``stage1_unit1_bn2_beta``."""
    place = re.fullmatch(r"(?:stage(\d)_unit(\d)_)?(conv|bn|fc)(\d?)(sc)?_(\w+)", ours)
    assert place
    stage, unit, kind, number, shortcut, suffix = place.groups()
    suffix = {"gamma": "weight", "beta": "bias"}.get(suffix, suffix)
    if not stage:
        return f"{kind}{'' if kind == 'fc' else 1}.{suffix}"
    within = f"downsample.{'01'[kind == 'bn']}" if shortcut else f"{kind}{number}"
    return f"layer{stage}.{int(unit) - 1}.{within}.{suffix}"
