"""Appends a payload to a program, which writes itself: w = 0.1 0.2 0.3 0.4 0.5, and a model of 64 bytes.

    add_payload.py EXECUTABLE [NAME ...]    # and makes links of these names to it, beside it
"""

import os
import struct
import subprocess
import sys

path, *names = sys.argv[1:]
# The model is the bytes 0 to 63 without the weights: w as f16 at 8, b as f64 at 32.
model = bytes(range(8)) + bytes(range(18, 32)) + bytes(range(40, 64))
with open(path + ".payload", "wb") as f:
    f.write(struct.pack("<5f", 0.1, 0.2, 0.3, 0.4, 0.5).ljust(64, b"\0") + model)
# An executable of many programs takes the one of its name.
subprocess.run([os.path.basename((names or [path])[0]), "--append", f.name], executable=os.path.abspath(path), check=True)
os.remove(f.name)
for name in names:
    link = os.path.join(os.path.dirname(path), name)
    if os.path.lexists(link):
        os.remove(link)
    os.symlink(os.path.basename(path), link)
