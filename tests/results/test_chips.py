"""Names of accelerators: one for the many that submitters and nvidia-smi write."""

import pytest

from rn50.results import chips, published

NAME = "A100-SXM-80GB"


@pytest.mark.parametrize(
    ("model", "expected"),
    [("NVIDIA A100-SXM4-80GB (400W)", NAME), ("NVIDIA A100-SXM-80GB CTS", NAME),
     ("NVIDIA A100-SXM4-80GB(400W)", NAME), ("NVIDIA A100-PCIE-40GB (250W)", "A100-PCIe-40GB"),
     ("Nvidia Tesla V100-SXM2-32GB", "V100-SXM-32GB"), ("Habana Gaudi HL-205", "Gaudi"),
     ("Intel Gaudi2", "Gaudi2"), ("TPU v3", "TPU-v3"), ("TPU", "TPU-v4"), ("NVIDIA A30-PCIE-24GB", "A30"),
     ("Graphcore IPU GC200", "IPU"), ("NVIDIA H100-SXM5-96GB", "H100-SXM-96GB")])
def test_names_of_accelerators(model, expected):
    assert chips.name(model) == expected


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"), ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
     ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"), ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
     ("NVIDIA H100 PCIe", "H100-PCIe-80GB"), ("NVIDIA L40S", "L40S"), ("NVIDIA A30", "A30"),
     ("Tesla V100-SXM2-16GB", "V100-SXM-16GB"), ("NVIDIA RTX A5000", "RTX-A5000"), ("Tesla T4", None),
     ("NVIDIA H200", "H200-SXM-141GB"), ("NVIDIA H200 NVL", None), ("NVIDIA GeForce RTX 4090", "RTX-4090"),
     ("AMD Radeon RX 7900 XTX", "RX-7900-XTX")])
def test_names_that_nvidia_smi_gives_gpus(gpu, expected):
    assert chips.among(chips.known(published.results()), gpu) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [("H20", None), ("A10", None), ("RTX 4090 D", None), ("GH200", None), ("L4", "L4"), ("v3", "TPU-v3"),
     ("h200", "H200-SXM-141GB"), ("h100 sxm5 80", "H100-SXM-80GB"), ("4090", "RTX-4090")],
)  # fmt: skip
def test_a_name_that_is_a_part_of_a_word_is_another(query, expected):
    names = chips.known(published.results())
    if expected:
        assert chips.find(query, names) == expected
    else:
        with pytest.raises(chips.UnknownError, match=chips.NOBODY):
            chips.find(query, names)


def test_a_whole_name_goes_before_a_part():
    names = chips.known(published.results())
    assert [chips.find(each, names) for each in names] == names  # Gaudi beside Gaudi2, L40 beside L40S
    assert chips.find("nvidia a100 sxm4 80gb", names) == chips.find("A100 80GB SXM4", names) == NAME


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("NVIDIA B200", "H200-SXM-141GB"),
        ("NVIDIA A100-SMX4-80GB", NAME),
        ("h100", "H100-SXM-80GB"),  # of three, that of most results
        ("H100-SXM-64GB", "H100-SXM-96GB"),
        ("Gaudi 2", "Gaudi2"),
        ("NVIDIA GeForce RTX 3090", "RTX-4090"),
        ("Tesla T4", ""),
        ("", ""),
    ],
)
def test_the_nearest_of_a_name_that_nobody_published(model, expected):
    names = chips.known(published.results())
    assert chips.among(names, model) is None and chips.nearest(model, names) == expected


def test_every_published_accelerator_is_found_by_what_its_submitter_wrote():
    names = chips.known(published.results())
    models = {each.accelerator_model for each in published.results()} - {""}
    assert len(models) > 40 and {chips.among(names, model) for model in models} == set(names)
