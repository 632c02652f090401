"""ResNet-50 v1.5 as every implementation builds it: four stages of bottleneck units (He et al., arXiv:1512.03385, table 1)."""

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""(units, channels of the 3x3 convolution) of each stage, at width 1."""
EXPANSION = 4
"""Output channels of a unit for each channel of its 3x3 convolution."""
