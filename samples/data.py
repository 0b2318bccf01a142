"""Writes the data of the samples:  python3 samples/data.py digits|text

digits   scikit-learn's 8x8 digits, the first 512, into mlp/ and resnet/ (committed; needs scikit-learn)
text     English prose as byte tokens into gpt2/tokens.npy, from the licences that Debian's base-files
         installs on every machine (needs nothing; samples/run writes it on demand)
"""

import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
LICENCES = ["GPL-3", "LGPL-2.1", "MPL-2.0", "GFDL-1.3", "Apache-2.0", "Artistic", "GPL-2"]


def digits():
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x[:512] / 16).astype(np.float32)
    y = y[:512].astype(np.int64)
    for sample, shape in ("mlp", (512, 64)), ("resnet", (512, 1, 8, 8)):
        np.save(HERE / sample / "x.npy", x.reshape(shape))
        np.save(HERE / sample / "labels.npy", y)


def text():
    data = b"".join(pathlib.Path("/usr/share/common-licenses", name).read_bytes() for name in LICENCES)
    header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(data)},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    tokens = struct.pack(f"<{len(data)}H", *data)
    (HERE / "gpt2" / "tokens.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + tokens)


if __name__ == "__main__":
    what = sys.argv[1:]
    if not what or set(what) - {"digits", "text"}:
        raise SystemExit(__doc__)
    for name in what:
        globals()[name]()
