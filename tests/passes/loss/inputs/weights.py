"""Writes class weights as NumPy files: a valid file, one of integers, one of two dimensions and a truncated one."""

import struct
import sys


def write(name, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    with open(f"{sys.argv[1]}.{name}.npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


write("f8", "<f8", "(4,)", struct.pack("<4d", 1, 0.5, 2, 3))
write("i8", "<i8", "(4,)", struct.pack("<4q", 1, 1, 2, 3))
write("2d", "<f4", "(2, 2)", struct.pack("<4f", 1, 1, 2, 3))
write("cut", "<f4", "(4,)", struct.pack("<3f", 1, 1, 2))
