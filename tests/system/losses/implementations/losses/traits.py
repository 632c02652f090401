"""MXNet's traits."""

from rn50.frameworks import traits

TRAITS = traits("mxnet")._replace(is_default=False)
