"""make_rows.py FILE.npy ROWS COLUMNS: numbers of f32 that rise from 0, without a framework."""

import struct
import sys

path, rows, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".ljust(117) + "\n"
with open(path, "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    f.write(struct.pack(f"<{rows * columns}f", *(i / 9 for i in range(rows * columns))))
