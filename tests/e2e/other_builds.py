"""Executables of other builds do not train together: the ranks are told the first option, or the weights, that differ.

Each row compiles the mlp once more, with other options or weights, for rank 1 of a job whose rank 0 runs the first.  The same
model under another path is the same.
"""

import os
import pathlib
import socket
import subprocess
import sys

import common
from common import NNAOT, SAMPLES, check, compile_in_a_hurry, data_flags, run, scratch

MODEL = SAMPLES / "mlp" / "mlp.onnx"
OPTIONS = {"--batch": "16", "--loss": "cross_entropy(logits)", "--optimizer": "adamw:weight_decay=0.1", "--lr": "0.001"}
# Options of rank 1, and the difference.
CASES = [
    ({"--lr": "0.01"}, "the compiled --lr is 0.001 at rank 0, but 0.01 at rank 1"),
    ({"--optimizer": "adamw:weight_decay=0"},
     "the compiled --optimizer is adamw:weight_decay=0.1 at rank 0, but adamw:weight_decay=0 at rank 1"),
    ({"--optimizer": "sgd"}, "the compiled --optimizer is adamw:weight_decay=0.1 at rank 0, but sgd at rank 1"),
    ({"--dtype": "bf16"}, "the compiled --dtype is f32 at rank 0, but bf16 at rank 1"),
    ({"--batch": "32"}, "the compiled --batch is 16 at rank 0, but 32 at rank 1"),
    ({"--micro-batches": "2"}, "the compiled --micro-batches is 1 at rank 0, but 2 at rank 1"),
    ({"--loss": "cross_entropy(logits,label_smoothing=0.1)"}, "the compiled --loss is cross_entropy(logits) at rank 0, but "),
    ({"--clip-norm": "1"}, "the compiled --clip-norm is 0 at rank 0, but 1 at rank 1"),
    ({"--accumulate": "2"}, "the compiled --accumulate is 1 at rank 0, but 2 at rank 1"),
    ({"--lr-schedule": "linear:warmup=2"}, "the compiled --lr-schedule is constant at rank 0, but linear:warmup=2 at rank 1"),
    ({"--freeze": "layers.0.*"}, "the compiled --freeze is not given at rank 0, but layers.0.* at rank 1"),
    ({"--no-decay": "biases"}, "the compiled --no-decay is not given at rank 0, but biases at rank 1"),
    ({"--group": "layers.0.*:lr=0.1x"}, "the compiled --group is not given at rank 0, but layers.0.*:lr=0.1x at rank 1"),
    ({"--init": "random:3"}, "the compiled --init is not given at rank 0, but random:3 at rank 1"),
    ({"--train-mode": None}, "the compiled --train-mode is not given at rank 0, but true at rank 1"),
    ({"--plan": "zero1"}, "the plan is 'dp' at rank 0, but 'zero1' at rank 1"),
]


def compiled(out, model=MODEL, more=()):
    options = {**OPTIONS, "--plan": "dp", **dict(more)}
    run(NNAOT, model, "-g", 2, "-o", out, *(word for name, value in options.items() for word in (name, value) if word))


def job(programs):
    """Runs a program as each rank; returns the exit status and the errors of each.  Rank 1 that is refused is waited for by
    rank 0, which is ended."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for i, program in enumerate(programs):
        env = {**os.environ, "RANK": str(i), "WORLD_SIZE": str(len(programs)), "LOCAL_WORLD_SIZE": str(len(programs)),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        flags = [*data_flags("mlp"), "--steps", 2]
        ranks.append(subprocess.Popen([str(word) for word in (program, *flags)], env=env, text=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    second = ranks[1].communicate(timeout=60)[1]
    if ranks[1].returncode:
        ranks[0].kill()
    return [ranks[0].wait(60), ranks[1].returncode], second


def with_another_weight(path):
    """The model with the lowest bit of one weight flipped.  Most of its bytes are weights, and so is the one in the middle."""
    data = bytearray(MODEL.read_bytes())
    data[len(data) // 2] ^= 1
    pathlib.Path(path).write_bytes(data)


def main():
    with scratch() as folder:
        os.chdir(folder)
        compile_in_a_hurry(folder)
        compiled("first")
        for more, said in CASES:
            compiled("second", more=more)
            codes, second = job(["./first", "./second"])
            check(f"{more} is said", codes[1] == 1 and f"rank 1: error: {said}" in second, codes, second)

        # Other weights, in executables for any rank and for one each: split programs have their rank's part only.
        with_another_weight("mlp.onnx")
        for plan in ("dp", "tp"):
            for split in ({}, {"--split-ranks": None}):
                compiled("first", more={"--plan": plan, **split})
                compiled("second", "mlp.onnx", {"--plan": plan, **split})
                name = lambda which, rank: f"./{which}.{rank}" if split else f"./{which}"
                codes, second = job([name("first", 0), name("second", 1)])
                check(f"other weights, {plan} {split}", codes[1] == 1 and
                      "rank 1: error: the checksum of the compiled weights is " in second, codes, second)
                codes, second = job([name("first", 0), name("first", 1)])
                check(f"equal weights, {plan} {split}", codes == [0, 0], codes, second)

        # The same model in another folder.
        pathlib.Path("mlp.onnx").write_bytes(MODEL.read_bytes())
        compiled("first")
        compiled("second", "mlp.onnx")
        codes, second = job(["./first", "./second"])
        check("another path of the model", codes == [0, 0], codes, second)
    common.finish()


sys.exit(main())
