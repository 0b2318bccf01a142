"""Signals leave the products of a running step alone: a hundred requests for a checkpoint change no bit of the weights.

oneDNN's kernels for AVX2 keep data below the stack pointer, where a handler on their thread would write.
"""

import os
import pathlib
import random
import signal
import subprocess
import time

import onnx_bytes
from common import NNAOT, check, compile_in_a_hurry, finish, run, scratch, write_npy
from onnx_bytes import field, node, tensor, value_info

WIDTH, ROWS, STEPS = 512, 32, 300


def main():
    rng = random.Random(3)
    numbers = lambda n, size: [rng.gauss(0, size) for _ in range(n)]
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        graph = (field(1, node("MatMul", ["x", "w"], ["h"], "/fc1")) + field(1, node("Tanh", ["h"], ["t"], "/act"))
                 + field(1, node("MatMul", ["t", "v"], ["y"], "/fc2")) + field(2, "g")
                 + field(5, tensor("w", [WIDTH, WIDTH], numbers(WIDTH * WIDTH, 0.03)))
                 + field(5, tensor("v", [WIDTH, 10], numbers(WIDTH * 10, 0.03)))
                 + field(11, value_info("x", ["n", WIDTH])) + field(12, value_info("y", ["n", 10])))
        (folder / "m.onnx").write_bytes(onnx_bytes.model(graph))
        write_npy(folder / "x.npy", numbers(ROWS * WIDTH, 1), (ROWS, WIDTH))
        write_npy(folder / "l.npy", [i % 10 for i in range(ROWS)], (ROWS,), "<i8")
        run(NNAOT, folder / "m.onnx", "--batch", ROWS, "--loss", "cross_entropy(y)", "-o", folder / "m")
        words = [folder / "m", "--input", f"x={folder}/x.npy", "--input", f"labels={folder}/l.npy", "--steps", STEPS]
        env = {**os.environ, "NNRT_MAX_ISA": "avx2", "OMP_NUM_THREADS": "1"}
        run(*words, "--save", folder / "a.safetensors", env=env)
        log = folder / "log"
        job = subprocess.Popen([str(w) for w in [*words, "--save", folder / "b.safetensors", "--log", log]], env=env, text=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while job.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 3):
            time.sleep(0.01)
        sent = 0
        while job.poll() is None and sent < 100:
            job.send_signal(signal.SIGUSR1)
            sent += 1
            time.sleep(0.005)
        said = job.communicate(timeout=120)[1]
        check("signals arrive while it trains", said.count("SIGUSR1 asks for a checkpoint") > 5, sent, said[-2000:])
        check("training ends well", job.returncode == 0, job.returncode, said[-2000:])
        saved = [path.read_bytes() if path.exists() else path.name for path in (folder / "a.safetensors", folder / "b.safetensors")]
        check("the weights are those without signals", saved[0] == saved[1])
    finish()


main()
