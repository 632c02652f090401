"""Names of the weights of torchvision's ResNet-50, so that rn50 can read its files of weights.

torchvision's network is that of the benchmark (v1.5), and its input is normalised in the same way.
``rn50/weights/weights_file.py`` uses this file, which imports no PyTorch.
"""

import re

FACTS = {"width": "1", "image_size": "224", "eval_resize": "256", "framework": "torchvision"}
"""Facts about the network that torchvision's files do not contain (``rn50.weights.weights_file.FACTS``)."""
CLASSIFIER = "fc.weight"
"""Name of a tensor by which a file of torchvision is recognised; its first dimension is the number of
classes."""
UNREAD = ".num_batches_tracked"
"""Suffix of the names of tensors that no evaluation reads, and that our network does not have."""


def name(ours: str) -> str:
    """Return torchvision's name of the tensor with our name ``ours``: ``layer1.0.bn2.bias`` for
    ``stage1_unit1_bn2_beta``."""
    # stage1_unit1_bn2_beta, stage1_unit1_conv1sc_weight (of the shortcut), conv0_weight, fc1_bias
    place = re.fullmatch(r"(?:stage(\d)_unit(\d)_)?(conv|bn|fc)(\d?)(sc)?_(\w+)", ours)
    assert place
    stage, unit, kind, number, shortcut, suffix = place.groups()
    suffix = {"gamma": "weight", "beta": "bias"}.get(suffix, suffix)
    if not stage:  # the first convolution and its norm, conv1 and bn1 in torchvision, and fc
        return f"{kind}{'' if kind == 'fc' else 1}.{suffix}"
    layer = f"downsample.{'1' if kind == 'bn' else '0'}" if shortcut else f"{kind}{number}"
    return f"layer{stage}.{int(unit) - 1}.{layer}.{suffix}"
