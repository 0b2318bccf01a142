"""Several meshes on GPUs: tests/rt/meshes.c trains as on the CPU, with every transport.

The data of moves is compared in the GPU with the messages' definition; a wrong element makes the loss NaN.
"""

import json
import os

from rt_common import (CPU, HAS_PROCESSES, ONE_GPU, check, distance, finish, folder_with_data, log, mpirun, nccl_takes,
                       nccl_train, run, safetensors, train, transport)

PROGRAMS = {"stages1": 1, "stages2": 2, "apart4": 4, "overlap4": 4, "uneven4": 4}
EVERY = ["--steps", 12, "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 5]


def read(path):
    with open(path, "rb") as f:
        return f.read()


with folder_with_data():
    for program, n in PROGRAMS.items():
        cpu = ["--log", "cpu.jsonl", "--save", "cpu.st", "--traffic", "cpu.json", "--checkpoint-dir", "cpu"]
        gpu = ["--log", "gpu.jsonl", "--save", "gpu.st", "--traffic", "gpu.json", "--checkpoint-dir", f"ck-{program}"]
        train(CPU / program, *EVERY, *cpu)
        ways = [("threads on one gpu", {})]
        if n > 1:
            ways += [("threads on two gpus", {"env": {"EMULATED_GPUS": "2"}})]
        if n > 1 and HAS_PROCESSES:
            ways += [("staged", {"launcher": mpirun(n), "env": ONE_GPU})]
        if n > 1 and nccl_takes(n):
            ways += [("NCCL", {"launcher": mpirun(n), "env": {"EMULATED_GPUS": str(n)}}),
                     ("NCCL, not recorded", {"launcher": mpirun(n), "env": {"EMULATED_GPUS": str(n), "CUDA_LAUNCH_BLOCKING": "1"}})]
        for way, how in ways:
            what = f"{program}, {way}"
            os.system("rm -rf gpu.*")
            done = train(f"gpu_{program}", *EVERY, *gpu, **how)
            if "launcher" in how:
                check(f"{what}: is how they talk", transport(done) == way.split(",")[0], done.stderr)
            d = distance("gpu.jsonl", "cpu.jsonl")
            check(f"{what}: losses as on processors", d < 1e-5, d)
            evals = [[e["eval_loss"] for e in log(f) if "eval_loss" in e] for f in ("gpu.jsonl", "cpu.jsonl")]
            check(f"{what}: and those of evaluation", len(evals[0]) == 3
                  and all(abs(a - b) < 1e-5 * abs(b) for a, b in zip(*evals, strict=True)), evals)
            a, b = safetensors("gpu.st")[0], safetensors("cpu.st")[0]
            check(f"{what}: weights that are in no sum", all(a[k] == b[k] for k in ("near", "wide")))
            check(f"{what}: sends what processors do", json.loads(read("gpu.json")) == json.loads(read("cpu.json")))

    # Other random messages.
    for lots in 2, 3:
        train("gpu_overlap4", "--steps", 4, env={"LOTS": str(lots)})
        if nccl_takes(4):
            nccl_train(4, "gpu_apart4", "--steps", 4, env={"LOTS": str(lots)})

    # CPUs, and ranks on other devices, resume from a GPU's checkpoint.
    train(CPU / "stages1", "--steps", 16, "--log", "want.jsonl")
    for program in CPU / "overlap4", "gpu_apart4":
        train(program, "--steps", 16, "--checkpoint-dir", "ck-uneven4", "--resume", "--log", "on.jsonl")
        pairs = list(zip(log("on.jsonl"), log("want.jsonl")[12:], strict=True))
        check(f"{program} goes on from a checkpoint of others",
              all(abs(a["loss"] - b["loss"]) < 1e-4 * b["loss"] for a, b in pairs), pairs)
        os.system("rm ck-uneven4/step-000000000016*")

    train("gpu_apart4", "--steps", 3, "--trace", "t.json")
    events = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X"]
    check("a trace shows moves", any(e["name"] == "move" for e in events), {e["name"] for e in events})
    check("--describe lists the meshes", json.loads(run("gpu_apart4", "--describe").stdout)["meshes"]["second"]["ranks"] == [2, 3])
finish()
