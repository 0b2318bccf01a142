"""The emitted C of a model without savers of memory grows with its distinct blocks, not with its layers: loops over layers, inner
loops between gradient buckets, and tables of the numbers that do not grow evenly.

Compares GPTs of width 64 of 64 and 256 layers, which have three and twelve gradient buckets: bytes of C, of which the larger may
have 1.15 times those of the smaller.
"""

import os
import pathlib
import subprocess
import sys

from common import NNAOT, ROOT, check, finish, scratch

sys.path.insert(0, str(ROOT / "tests" / "bench"))
try:
    from large_models import gpt
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

MOST = 1.15


def c_bytes(folder, layers):
    gpt(f"gpt{layers}", folder, layers, 64, 4, tokens=32, words=256)
    weights = folder / f"gpt{layers}.bin"
    weights.touch()
    os.truncate(weights, 64 << 20)  # sparse: all weights are 0
    out = folder / f"c{layers}"
    subprocess.run([NNAOT, folder / f"gpt{layers}.onnx", "-g", "2", "--batch", "4", "--loss", "next_token(logits,input_ids)",
                    "--emit", "c", "-o", out], check=True, stderr=subprocess.DEVNULL, timeout=300)
    return sum(f.stat().st_size for f in out.iterdir() if f.suffix in (".c", ".h"))


with scratch() as name:
    small, large = [c_bytes(pathlib.Path(name), layers) for layers in (64, 256)]
check("the C of 256 layers", large < MOST * small, f"{large} bytes, and {small} of 64 layers")
finish()
