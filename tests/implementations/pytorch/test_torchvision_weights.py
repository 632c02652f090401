"""Weights of torchvision's ResNet-50 give in our network what they give in theirs, and the other way
round."""

import re
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors import numpy as format_  # noqa: E402
from torch import nn  # noqa: E402

from implementations.pytorch import inference  # noqa: E402
from implementations.pytorch.model import ResNet50, tensors  # noqa: E402
from rn50.files import ROOT  # noqa: E402
from rn50.weights import weights_file  # noqa: E402

CLASSES = 12


class Block(nn.Module):
    """A bottleneck with torchvision's names; the stride is in the 3x3 convolution."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        sizes = ((inputs, channels, 1, 1), (channels, channels, 3, stride), (channels, 4 * channels, 1, 1))
        for number, (before, after, kernel, step) in enumerate(sizes, 1):
            setattr(self, f"conv{number}", nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{number}", nn.BatchNorm2d(after))
        self.downsample = None
        if inputs != 4 * channels:
            shortcut = nn.Conv2d(inputs, 4 * channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(4 * channels))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn3(self.conv3(self.bn2(self.conv2(y)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class StandIn(nn.Module):
    """torchvision's ResNet-50 by its names, where it is not installed."""

    def __init__(self, num_classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for number, blocks in enumerate((3, 4, 6, 3), 1):
            stage = []
            for block in range(blocks):
                stride = 2 if number > 1 and block == 0 else 1
                stage.append(Block(inputs, 32 << number, stride))
                inputs = 4 * (32 << number)
            setattr(self, f"layer{number}", nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def theirs(kind):
    if kind == "stand-in":
        return StandIn(num_classes=CLASSES)
    return pytest.importorskip("torchvision").models.resnet50(num_classes=CLASSES)


@pytest.mark.parametrize("kind", ["stand-in", "torchvision"])
def test_the_same_images_give_the_same_logits(kind, tmp_path):
    torch.manual_seed(0)
    network = theirs(kind)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if "bn" in name or "downsample.1" in name:
                tensor.copy_(torch.rand_like(tensor, dtype=torch.float32) + 0.5)
    file = tmp_path / "resnet50.safetensors"
    format_.save_file({name: tensor.numpy() for name, tensor in network.state_dict().items()}, str(file))
    read = weights_file.read(file)
    assert (read.classes, read.width, read.image_size, read.eval_resize) == (CLASSES, 1, 224, 256)
    images = np.random.default_rng(0).standard_normal((2, 3, 64, 64), dtype=np.float32)
    with torch.inference_mode():
        wanted = network.eval()(torch.from_numpy(images)).numpy()
    found = inference.create(read, "eager", "float32", 1)(images)
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_ours_are_loaded_as_the_page_says(tmp_path, monkeypatch):
    network, random = ResNet50(1000, 1, False, "float32"), torch.Generator().manual_seed(0)
    network.initialize(0)
    for name, tensor in tensors(network).items():
        if name.endswith(("gamma", "beta", "running_mean", "running_var")):
            tensor.copy_(torch.rand(tensor.shape, generator=random) + 0.5)
    file = tmp_path / "results" / "MINE" / "result_0.safetensors"
    file.parent.mkdir(parents=True)
    ours = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors(network).items()}
    format_.save_file(ours, str(file))
    monkeypatch.chdir(tmp_path)
    models = types.SimpleNamespace(resnet50=lambda: StandIn(1000))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))
    page = (ROOT / "docs" / "after-training.md").read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?load_state_dict.*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    names = {}
    exec(compile(block, "after-training.md", "exec"), names)
    images = torch.randn(2, 3, 64, 64, generator=random)
    with torch.inference_mode():
        wanted, found = (each.eval()(images) for each in (network, names["network"]))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
