"""Runs the executable of payload.nn as it is, and with its last bytes cut off."""

import array
import pathlib
import subprocess
import sys

exe = pathlib.Path(sys.argv[1])
header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }"
header += b" " * (-(len(header) + 11) % 64) + b"\n"
x = exe.with_suffix(".npy")
x.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + array.array("f", [0] * 12).tobytes())
cut = exe.with_suffix(".cut")
cut.write_bytes(exe.read_bytes()[:-8])
cut.chmod(0o755)
for program in exe, cut:
    done = subprocess.run([program, "--input", f"x={x}", "--steps", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout.decode())
