"""Python imports this by itself when its folder is on PYTHONPATH, as it is while Horovod is built.

That build imports MXNet 1.9.1, which reads ``numpy.bool`` at import: a name that NumPy 1.24 took away, and
Python 3.12 has no older NumPy.
"""

import numpy

numpy.bool = bool
