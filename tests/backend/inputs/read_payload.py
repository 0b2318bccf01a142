"""Prints the payloads of executables as f32: the elements that are not 0, with a | after every 64 bytes."""

import pathlib
import struct
import sys

for exe in map(pathlib.Path, sys.argv[1:]):
    data = exe.read_bytes()
    magic, offset, n, _, _ = struct.unpack("<8s3qQ", data[-40:])
    assert magic == b"nnrtpay2" and n % 64 == 0
    print(f"{exe.name}:", end="")
    for at in range(offset, offset + n, 64):
        print("", *(f"{x:g}" for x in struct.unpack("<16f", data[at:at + 64]) if x), "|", end="")
    print()
