"""Writes class weights as NumPy files: valid files of versions 1 and 2, one of integers, one of two dimensions and a
truncated one."""

import struct
import sys


def write(name, descr, shape, data, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    if version == 2:
        header = f'{{"shape": {shape}, "fortran_order": False, "descr": "{descr}"}}\n'
    with open(f"{sys.argv[1]}.{name}.npy", "wb") as f:
        length = struct.pack("<H" if version == 1 else "<I", len(header))
        f.write(b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data)


write("f8", "<f8", "(4,)", struct.pack("<4d", 1, 0.5, 2, 3))
write("f4", "<f4", "(4,)", struct.pack("<4f", 1, 0.5, 2, 3), version=2)
write("i8", "<i8", "(4,)", struct.pack("<4q", 1, 1, 2, 3))
write("2d", "<f4", "(2, 2)", struct.pack("<4f", 1, 1, 2, 3))
write("cut", "<f4", "(4,)", struct.pack("<3f", 1, 1, 2))
