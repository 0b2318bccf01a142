"""Appends a payload to a program as the compiler does: w = 0.1 0.2 0.3 0.4 0.5, and a model of 64 bytes.

    add_payload.py EXECUTABLE [NAME ...]    # and makes links of these names to it, beside it
"""

import os
import struct
import sys

path, *names = sys.argv[1:]
# The model is the bytes 0 to 63 without the weights: w as f16 at 8, b as f64 at 32.
model = bytes(range(8)) + bytes(range(18, 32)) + bytes(range(40, 64))
payload = struct.pack("<5f", 0.1, 0.2, 0.3, 0.4, 0.5).ljust(64, b"\0") + model
with open(path, "r+b") as f:
    f.seek(0, 2)
    offset = (f.tell() + 4095) // 4096 * 4096
    f.truncate(offset)
    f.seek(offset)
    f.write(payload + struct.pack("<8s3q", b"nnrtpay1", offset, len(payload), 0))
for name in names:
    link = os.path.join(os.path.dirname(path), name)
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(os.path.basename(path), link)
