"""--fpmath of executables for CPUs: losses beside those of f32, bits, instruction sets, checkpoints, and --check-against.

Prints the largest relative differences of the loss and of grad_norm from f32's over 20 steps.
"""

import json
import os
import pathlib

from common import check, compile_in_a_hurry, compile_sample, data_flags, finish, read_log, run, scratch, worst_difference

STEPS = 20
# The most and the least difference of a loss.  Measured: see the table.
LIMITS = {"bf16": (1e-6, 5e-3), "bf16x3": (0, 2e-5)}
CPU = pathlib.Path("/proc/cpuinfo").read_text().split()
LEVELS = ["sse41"] + ["avx2"] * ("avx2" in CPU) + ["avx512"] * ("avx512f" in CPU)


class Sample:
    def __init__(self, folder, name, ranks=1, extra=()):
        self.folder, self.name, self.exe = folder, name, folder / f"{name}{ranks}"
        compile_sample(name, self.exe, ranks=ranks, extra=extra)

    def train(self, *flags, steps=STEPS, **env):
        """Returns the log, the bits of the weights, and what was said."""
        log, saved = self.folder / "log.jsonl", self.folder / "saved"
        log.unlink(missing_ok=True)
        said = run(self.exe, *data_flags(self.name), "--steps", steps, "--log", log, "--save", saved, *flags,
                   env={**os.environ, "OMP_NUM_THREADS": "1", **env})
        return read_log(log), saved.read_bytes(), said


def column(log, key):
    return [line[key] for line in log]


def losses(sample):
    plain, plain_bits, said = sample.train()
    check(f"{sample.name}: nothing is said of f32", "fpmath" not in said, said)
    check(f"{sample.name}: --fpmath f32 is the default", sample.train("--fpmath", "f32")[1] == plain_bits)
    for value, (least, most) in LIMITS.items():
        log, bits, _ = sample.train("--fpmath", value)
        loss, norm = (worst_difference(column(log, key), column(plain, key)) for key in ("loss", "grad_norm"))
        print(f"{sample.name:5} {value:6} {loss:9.1e} {norm:9.1e}", flush=True)
        check(f"{sample.name}: losses of {value} are near f32's, and others", least <= loss < most and bits != plain_bits, loss)
        check(f"{sample.name}: {value} has the same bits again", sample.train("--fpmath", value)[1] == bits)
        # Other instruction sets multiply the same numbers.
        for level in LEVELS:
            other, _, said = sample.train("--fpmath", value, NNRT_MAX_ISA=level)
            apart = worst_difference(column(other, "loss"), column(log, "loss"))
            print(f"{sample.name:5} {value:6} {apart:9.1e} between {level} and this processor", flush=True)
            check(f"{sample.name}: losses of {value} with {level}", apart < most / 5, apart)
            check(f"{sample.name}: {level} is said to save no time", said.count(f"note: --fpmath {value} saves no time: the "
                  f"instruction set '{level}' has no products of bf16") == 1, said)


def describe(exe):
    said = {level: json.loads(run(exe, "--fpmath", "bf16", "--describe", env={**os.environ, "NNRT_MAX_ISA": level}))
            for level in LEVELS}
    check("--describe has the instruction set", all((x["instruction_set"], x["bf16_products"], x["fpmath"]) == (level, "none", "bf16")
                                                    for level, x in said.items()), said)


def resumed(sample, folder):
    """A checkpoint is resumed to the same bits, and with another value."""
    _, whole, _ = sample.train("--fpmath", "bf16", steps=6)
    flags = ["--fpmath", "bf16", "--checkpoint-dir", folder / "ck"]
    sample.train(*flags, steps=3)
    _, bits, said = sample.train("--fpmath", "f32", "--checkpoint-dir", folder / "ck", "--resume", steps=4)
    check("a checkpoint of bf16 is resumed in f32", bits and "warning" not in said, said)
    run("rm", "-r", folder / "ck")
    sample.train(*flags, steps=3)
    check("a checkpoint of bf16 is resumed in bf16", sample.train(*flags, "--resume", steps=6)[1] == whole)


def evaluated(sample):
    """The flag is of evaluations, too."""
    rows, of = [f.replace("--input", "--eval-input") for f in map(str, data_flags(sample.name))], {}
    for value in "f32", "bf16":
        log = sample.folder / f"{value}.jsonl"
        run(sample.exe, *rows, "--eval-only", "--fpmath", value, "--log", log)
        of[value] = read_log(log)[0]["eval_loss"]
    check("an evaluation rounds", 0 < worst_difference([of["bf16"]], [of["f32"]]) < 5e-3, of)


def against(folder):
    """Ranks with shards of products round like the single-device program, which has the flag, too."""
    for name in "mlp", "gpt2":
        sample = Sample(folder, name, 2, ["--plan", "tp", "--check-with", 1])
        for value in LIMITS:
            _, _, said = sample.train("--fpmath", value, "--check-against", f"{sample.exe}.check", steps=3, NNRT_MAX_ISA=LEVELS[-1])
            check(f"{name} under tp in {value} is equal to one rank", "equal to '" in said and "differs" not in said, said)
            check(f"{name}: the note is said once", said.count("saves no time") == 1, said)


with scratch() as folder:
    folder = pathlib.Path(folder)
    compile_in_a_hurry(folder)
    mlp, gpt2 = (Sample(folder, name) for name in ("mlp", "gpt2"))
    losses(mlp)
    losses(gpt2)
    describe(mlp.exe)
    resumed(mlp, folder)
    evaluated(mlp)
    against(folder)
finish()
