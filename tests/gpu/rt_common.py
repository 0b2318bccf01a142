"""tests/rt/common.py for programs on the emulator: rt_line.c in several kinds, and the same for processors."""

import os
import pathlib
import sys

sys.path.insert(0, os.environ["COMMON"])
import common  # noqa: E402
from common import *  # noqa: E402,F401,F403

EMULATED = os.environ.get("GPU") != "1"  # what the environment says of gpus is so
CPU = pathlib.Path(os.environ["CPU_PROGRAMS"])


def distance(a, b):
    """The largest relative difference of two logs' losses and norms; infinite if anything is no number."""
    worst = 0.0
    for x, y in zip(common.losses(a), common.losses(b), strict=True):
        for p, q in zip(x[1:], y[1:]):
            d = abs(p - q) / abs(q) if p is not None and q is not None else float("inf")
            worst = max(worst, d if d == d else float("inf"))
    return worst
