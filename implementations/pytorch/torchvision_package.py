"""Import torchvision only where it is needed, because not every set of packages contains it."""

from typing import Any

import torch

from rn50.errors import UserError


def torchvision(asked_by: str) -> Any:
    """Return the package. Raises UserError, which begins with ``asked_by``, if it is missing or does not fit
    PyTorch."""
    try:
        import torchvision as package
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another PyTorch
        raise UserError(
            asked_by,
            f"torchvision cannot be imported ({error})",
            f"install the torchvision that is made for PyTorch {torch.__version__}",
        ) from error
    return package
