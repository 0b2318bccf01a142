#!/usr/bin/env python3
"""Flips single bits of an executable and of its checkpoints; each must be noticed, or change nothing.

    flipped_bits.py [--count 500] [--checkpoints 200] [--seed 0] [--results FILE.jsonl]
    flipped_bits.py --parts '^.rela|header'     only in these parts of the executable
    flipped_bits.py --check     a test of CI: a few flips in each part, and one in each field of the trailer

An executable of the mlp sample trains three steps, saves its weights and exports its model; a flip is a copy with one other
bit, which does the same.  Places are drawn from all bits of the file.  A checkpoint is the newer of two, and a flip a resumed
run.  The outcomes:

    message     ended with an error of the runtime before training, or skipped the checkpoint with a warning
    refused     the kernel or the dynamic linker refused the file, with an error
    killed      a signal before the first function of the program, in the kernel, the dynamic linker or the C library, which
                read its headers and tables and run the functions that choose kernels for the machine
    same        no message, and the losses, weights and model of the intact file, bit by bit
    SILENT      no message, and other results
    CRASH       a signal, a hang, or an exit without a message, of the program itself

The exit status is 1 if there is a SILENT or a CRASH; or, of a flip after the program and in a checkpoint, a `same`.
"""

import argparse
import bisect
import collections
import errno
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import check, compile_sample, data_flags, finish, run, scratch  # noqa: E402

STEPS, TRAILER = 3, ("magic", "offset", "bytes", "plans", "sum")
BAD = ("SILENT", "CRASH")
# Parts that others read before the program runs.
TABLES = r"^\.(rela|dyn|got|gnu|init|interp)|headers?$"
# Functions that run before, or are, the comparison of the program's checksums.
CHECKS = ("_start", "check_first", "check_program", "refuse_damaged", "crashed", "find_parts", "program_sound", "find_damaged", "block_sound",
          "nnrt_in_open", "nnrt_xxh64")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "C"}
LOADER = ("error while loading shared libraries", "symbol lookup error", "relocation error", "Inconsistency detected by ld.so",
          "undefined symbol", "ELF", "version `", "unexpected reloc type", "cannot open shared object", "ld.so")


def parts_of_elf(data):
    """The parts of an ELF file as (offset, end, name): headers, sections, and in .text the code that compares checksums."""
    at, = struct.unpack_from("<Q", data, 40)
    heads, = struct.unpack_from("<H", data, 56)
    size, n, names = struct.unpack_from("<3H", data, 58)
    rows = [struct.unpack_from("<IIQQQQI", data, at + i * size) for i in range(n)]

    def name_of(table, name):
        begin = rows[table][4] + name
        return data[begin:data.index(b"\0", begin)].decode()

    parts = [(0, 64, "ELF header"), (64, 64 + 56 * heads, "program headers"), (at, at + n * size, "section headers")]
    code = [row for row in rows if name_of(names, row[0]) == ".text"][0]
    for name, kind, _, _, offset, length, link in rows[1:]:
        if kind != 8 and length:  # 8: without bytes in the file
            parts.append((offset, offset + length, name_of(names, name)))
        for symbol in range(offset, offset + length, 24) if kind == 2 else ():  # 2: of symbols
            name, _, _, _, address, length_of = struct.unpack_from("<IBBHQQ", data, symbol)
            if length_of and name_of(link, name) in CHECKS:
                begin = address - code[3] + code[4]
                parts.append((begin, begin + length_of, ".text: checks"))
    return parts


def parts_of_executable(data):
    """All parts as (offset, end, name) without gaps: bytes between two are 'padding'."""
    magic, offset, size, plans, _ = struct.unpack("<8s3qQ", data[-40:])
    assert magic == b"nnrtpay2"
    trailer = len(data) - 40
    found = parts_of_elf(data[:offset])
    found += [(offset, offset + size, "payload"), (offset + size, trailer, "checksums")]
    found += [(trailer + 8 * i, trailer + 8 * i + 8, f"trailer: {name}") for i, name in enumerate(TRAILER)]
    # Of two parts that overlap the shorter one is inside of the other.
    names = ["padding"] * len(data)
    for begin, end, name in sorted(found, key=lambda part: part[0] - part[1]):
        names[begin:end] = [name] * (end - begin)
    parts, at = [], 0
    for name, group in itertools.groupby(names):
        end = at + sum(1 for _ in group)
        parts.append((at, end, name))
        at = end
    return parts


def parts_of_checkpoint(data):
    n, = struct.unpack("<Q", data[:8])
    return [(0, 8, "length"), (8, 8 + n, "header"), (8 + n, len(data), "tensors")]


def part_at(parts, at):
    return parts[bisect.bisect_right([begin for begin, _, _ in parts], at) - 1][2]


def flipped(data, bit):
    other = bytearray(data)
    other[bit // 8] ^= 1 << bit % 8
    return bytes(other)


def start(command, **kw):
    """Runs a command; returns its exit status, None for a hang, and its output."""
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, **kw)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    except OSError as error:
        if error.errno not in (errno.ENOEXEC, errno.EINVAL, errno.ENOENT, errno.ENOMEM, errno.EIO, errno.ELIBBAD):
            raise
        return "kernel", os.strerror(error.errno)
    return done.returncode, done.stdout.decode(errors="replace")


class Executable:
    """The intact executable, its results, and runs of others."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.exe = self.folder / "train"
        compile_sample("mlp", self.exe)
        self.data = self.exe.read_bytes()
        self.parts = parts_of_executable(self.data)
        self.outputs = [self.folder / "weights.safetensors", self.folder / "model.onnx", self.folder / "log.jsonl"]
        status, said = self.train(self.exe)
        assert status == 0, said
        self.results = self.read()
        status, said = start([self.exe, "--verify"])
        check("the intact executable is verified", status == 0 and "damaged" not in said, said)

    def train(self, exe, **kw):
        for path in self.outputs:
            path.unlink(missing_ok=True)
        weights, model, log = self.outputs
        return start([exe, *data_flags("mlp"), "--steps", STEPS, "--save", weights, "--export", model, "--log", log],
                     env=kw.pop("env", ENVIRONMENT), **kw)

    def read(self):
        if not all(path.exists() for path in self.outputs):
            return None
        weights, model, log = (path.read_bytes() for path in self.outputs)
        return weights, model, [json.loads(line)["loss"] for line in log.splitlines()]

    def outcome(self, exe, part):
        status, said = self.train(exe)
        if status == 0:
            return ("same" if self.read() == self.results else "SILENT"), said
        if status == "kernel":
            return "refused", said
        if status == 1 and "error: " in said and not any(text in said for text in LOADER):
            # Before training: the log is empty, and nothing else is there.
            return ("CRASH" if any(path.exists() and path.stat().st_size for path in self.outputs) else "message"), said
        if status in (1, 127) and any(text in said for text in LOADER):
            return "refused", said
        # The log of the dynamic linker, up to the program's first instruction.
        _, loads = self.train(exe, env={**ENVIRONMENT, "LD_DEBUG": "files"})
        if "initialize program" in loads and not re.search(TABLES, part):
            return "CRASH", f"status {status}: {said}"
        return ("killed" if status is None or status < 0 or status in (1, 126, 127) else "CRASH"), f"status {status}: {said}"

    def flip(self, bit):
        other = self.folder / "flipped"
        other.unlink(missing_ok=True)
        other.write_bytes(flipped(self.data, bit))
        other.chmod(0o755)
        part = part_at(self.parts, bit // 8)
        outcome, said = self.outcome(other, part)
        if outcome == "message" or part in ("payload", "checksums") or part.startswith("trailer"):
            status, verified = start([other, "--verify"], env=ENVIRONMENT)
            check(f"--verify finds bit {bit} in {part}", status == 1 and ("damaged" in verified or "error: " in verified),
                  status, verified, said)
        return part, outcome, said


class Checkpoint:
    """A folder with checkpoints of steps 2 and 4, and the weights after step 6."""

    def __init__(self, executable):
        self.exe, self.folder = executable.exe, executable.folder
        self.dir, self.weights = self.folder / "checkpoints", self.folder / "resumed.safetensors"
        run(self.exe, *data_flags("mlp"), "--steps", 4, "--checkpoint-dir", self.dir, "--checkpoint-every", 2, env=ENVIRONMENT)
        self.newest = self.dir / "step-000000000004.safetensors"
        self.kept = self.folder / "kept"
        shutil.copytree(self.dir, self.kept)
        self.data = self.newest.read_bytes()
        self.parts = parts_of_checkpoint(self.data)
        status, said = self.resume()
        assert status == 0 and "warning" not in said, said
        self.results = self.weights.read_bytes()
        self.restore()
        status, said = start([self.exe, "--verify", "--checkpoint-dir", self.dir])
        check("intact checkpoints are verified", status == 0 and "damaged" not in said and "after step 4" in said, said)

    def restore(self):
        shutil.rmtree(self.dir)
        shutil.copytree(self.kept, self.dir)
        self.weights.unlink(missing_ok=True)

    def resume(self):
        return start([self.exe, *data_flags("mlp"), "--steps", 6, "--checkpoint-dir", self.dir, "--resume", "--save", self.weights],
                     env=ENVIRONMENT)

    def flip(self, bit):
        self.restore()
        self.newest.write_bytes(flipped(self.data, bit))
        part = part_at(self.parts, bit // 8)
        status, said = start([self.exe, "--verify", "--checkpoint-dir", self.dir], env=ENVIRONMENT)
        check(f"--verify finds bit {bit} in {part}", status == 1 and "after step 2" in said, status, said)
        status, said = self.resume()
        if status != 0:
            return part, "CRASH", f"status {status}: {said}"
        # The checkpoint before is resumed, and its weights are those of a run that was never interrupted.
        same = self.weights.read_bytes() == self.results
        noticed = "cannot be used" in said and "after step 2" in said
        return part, "message" if same and noticed else "same" if same else "SILENT", said


def one_in_each(rng, parts, names, count=1):
    return [rng.randrange(8 * begin, 8 * end) for begin, end, name in parts if name in names for _ in range(count)]


def campaign(what, target, bits, results):
    table, bad = collections.defaultdict(collections.Counter), 0
    for bit in bits:
        part, outcome, said = target.flip(bit)
        table[part][outcome] += 1
        if results:
            results.write(json.dumps({"file": what, "bit": bit, "part": part, "outcome": outcome, "said": said[-400:]}) + "\n")
        program = what == "executable" and part != "payload" and part != "checksums" and not part.startswith("trailer")
        bad = outcome in BAD or outcome == "same" and not program
        check(f"bit {bit % 8} of byte {bit // 8} of the {what}, in {part}, is noticed", not bad, outcome, said[-1000:])
    outcomes = ("message", "refused", "killed", "same", *BAD)
    print(f"{what:18}" + "".join(f"{outcome:>9}" for outcome in outcomes))
    total = sum(table.values(), collections.Counter())
    for part, row in [*sorted(table.items(), key=lambda item: -item[1].total()), ("all", total)]:
        print(f"  {part:16}" + "".join(f"{row[outcome] or '':>9}" for outcome in outcomes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", metavar="REGEX", help="flip bits of the executable in these parts only, such as .rela.dyn")
    parser.add_argument("--results", type=argparse.FileType("w"))
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    rng = random.Random(a.seed)
    with scratch() as folder:
        executable = Executable(folder)
        if a.check:
            bits = one_in_each(rng, executable.parts, [f"trailer: {name}" for name in TRAILER], 2)
            bits += one_in_each(rng, executable.parts, ["checksums", "payload", ".text", ".rodata"], 4)
            bits += one_in_each(rng, executable.parts, [".data", ".data.rel.ro", ".eh_frame", ".symtab", "section headers"])
        else:
            places = [at for begin, end, name in executable.parts if re.search(a.parts or "", name) for at in range(begin, end)]
            bits = [8 * rng.choice(places) + rng.randrange(8) for _ in range(a.count)]
        campaign("executable", executable, bits, a.results)
        checkpoint = Checkpoint(executable)
        bits = [rng.randrange(8 * len(checkpoint.data)) for _ in range(a.checkpoints)]
        if a.check:
            bits = one_in_each(rng, checkpoint.parts, ["length", "header", "tensors"], 3)
        campaign("checkpoint", checkpoint, bits, a.results)
    finish()


if __name__ == "__main__":
    main()
