"""Random cases through nnaot-eval, as those of the ONNX backend suite: for lengths.py and image_ops.py."""

import argparse
import os
import pathlib
import random
import subprocess
import tempfile
import warnings


PROGRAM = pathlib.Path(os.environ.get("BUILD", "build")) / "bin" / "nnaot-eval"


def arguments(doc):
    """Returns the arguments of the command line, and the options that it has for nnaot-eval."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", help="writes the cases into this folder, and leaves them there")
    warnings.filterwarnings("ignore")
    return parser.parse_known_args()


def run(kinds, write, a, options):
    """Returns whether a case has failed.  A kind makes a case of a random.Random, and write(case, folder) writes it."""
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        for make in kinds:
            if a.only not in make.__name__:
                continue
            folders = []
            for i in range(a.count):
                folders.append(pathlib.Path(a.keep or temporary) / f"{make.__name__}_{a.seed + i}")
                write(make(random.Random(a.seed + i)), folders[-1])
            done = subprocess.run([PROGRAM, "--onnx-test", *options, *folders], capture_output=True, text=True,
                                  env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
            lines = done.stdout.splitlines()
            total = lines[-1].split() if lines else []
            good = done.returncode == 0 and total == ["all", str(a.count), "0", "0"]
            if not good:
                print(done.stdout, done.stderr, f"nnaot-eval ended with {done.returncode}")
            print(f"{make.__name__}: {a.count} cases, {'passed' if good else 'failed'}", flush=True)
            failed |= not good
    return failed
