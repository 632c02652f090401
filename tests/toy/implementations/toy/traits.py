"""The toy, described without importing it."""

from rn50.frameworks import Traits

TRAITS = Traits(
    name="Toy", package="numpy", packages="numpy|nvidia-dali-.*", requirements={"cpu": ("mxnet-cpu",)},
    precisions={"cpu": ("float32",)})
