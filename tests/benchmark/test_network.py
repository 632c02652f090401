"""The description of the network that implementations and exports share."""

import math

from rn50.benchmark import network, rules


def test_the_network_of_the_benchmark_has_its_parameters():
    shapes = network.shapes(rules.CLASSES)
    trainable = {name: shape for name, shape in shapes.items() if "running" not in name}
    assert len(trainable) == 161 and len(shapes) == 267
    assert sum(map(math.prod, trainable.values())) == rules.PARAMETERS


def test_names_are_those_of_every_convolution():
    names = [each.name for each in network.convolutions()]
    assert len(names) == len(set(names)) == 53
    assert names[:5] == [
        "conv0", "stage1_unit1_conv1", "stage1_unit1_conv2", "stage1_unit1_conv3", "stage1_unit1_conv1sc"]
    assert [unit.body[1].stride for unit in network.units()].count(2) == 3
