"""The table of small architectures (architecture_list.py), the data of their arguments, and images of other sizes."""

import numpy as np
from torch import nn

BATCH, TOKENS, WORDS, CLASSES, SIDE = 4, 12, 50, 10, 64
ROWS = 3 * BATCH  # of data: each row comes three or four times in ten steps

# Learning rates of SGD and AdamW.  Normalisation over a batch of 4 is ill-conditioned: with larger rates PyTorch in f32
# is 1e-2 from PyTorch in f64 after ten steps.
RATES = {"normal": (0.05, 1e-3), "careful": (1e-3, 1e-5), "tiny": (1e-6, 1e-6)}
MODELS = {}  # name: (constructor, rates, kind of labels)


def model(labels="class", rates="normal", name=None):
    def add(make):
        MODELS[name or make.__name__] = make, RATES[rates], labels
        return make
    return add


# -- Data ------------------------------------------------------------------------------------

def words(*shape):
    return lambda rng: rng.integers(2, WORDS, (ROWS, *shape))


def padded(rng):
    """Every second row ends with padding, token 1."""
    ids = words(TOKENS)(rng)
    ids[::2, 9:] = 1
    return ids


def normal(*shape):
    return lambda rng: rng.standard_normal((ROWS, *shape)).astype(np.float32)


def binary(*shape):
    return lambda rng: (rng.random((ROWS, *shape)) < 0.3).astype(np.float32)


def boxes(rng):
    first = rng.uniform(0, 6, (ROWS, 3, 2))
    return np.concatenate([first, first + rng.uniform(3, 9, (ROWS, 3, 2))], -1).astype(np.float32)


# Of an argument of forward(): its data.
DATA = {
    "input_ids": words(TOKENS), "decoder_input_ids": words(TOKENS), "padded_ids": padded,
    "time": lambda rng: rng.integers(0, 100, ROWS), "categories": lambda rng: rng.integers(0, 9, (ROWS, 4)),
    "x": normal(3, SIDE, SIDE), "x32": normal(3, 32, 32), "x96": normal(3, 96, 96), "pixel_values": normal(3, 32, 32),
    "clip": normal(3, 4, 32, 32), "gray": normal(1, 16, 16), "image_noise": normal(1, 16, 16), "binary": binary(1, 16, 16),
    "audio": normal(1600), "mel": normal(20, 40), "series": normal(24, 4), "signal": normal(4, 48), "nodes": normal(9, 6),
    "points": normal(16, 3), "features": normal(12), "other": normal(12), "noise": normal(8), "target": normal(CLASSES),
    "boxes": boxes, "anchors": binary(320, 3),
}
# Of a kind of labels: the shape after the batch, and the number of classes.
LABELS = {"class": ((), CLASSES), "words": ((TOKENS,), WORDS),
          "mask": ((SIDE, SIDE), 5), "mask32": ((8, 8), 5), "nodes": ((9,), CLASSES), "boxes": ((3,), CLASSES), "loss": None}


# -- Images ----------------------------------------------------------------------------------

class Images(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


class Small(Images):
    def forward(self, x32):
        return self.model(x32)


class Large(Images):
    def forward(self, x96):
        return self.model(x96)
