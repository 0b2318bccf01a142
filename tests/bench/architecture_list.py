"""Small architectures for architectures.py: of torchvision, timm, transformers, and modules written here.

Each is a function that returns a module in training mode without dropout.  forward() takes tensors with the batch first and
returns logits with the classes last, or a scalar, the loss.  Its arguments' names choose the data (DATA).  Weights are
random: only the definitions of the libraries are read.
"""

import torch
from torch import nn

import architectures_torchvision  # noqa: F401  each import adds its models to MODELS, in this order
import architectures_timm  # noqa: F401
import architectures_transformers  # noqa: F401
import architectures_written  # noqa: F401
from architecture_base import BATCH, DATA, LABELS, MODELS, ROWS  # noqa: F401


def build(name):
    """The model in training mode, without dropout."""
    torch.manual_seed(3)
    m = MODELS[name][0]().train()
    for part in m.modules():
        for key, value in list(vars(part).items()):
            if "drop" in key and type(value) is float:
                setattr(part, key, 0.0)
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
    return m
