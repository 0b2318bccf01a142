"""Ranks on GPUs: threads on one or several, processes with NCCL or sharing one; killed and stopped ranks."""

import os
import pathlib
import signal
import subprocess
import time

from rt_common import (CPU, DATA, EMULATED, HAS_PROCESSES, ONE_GPU, PROGRAMS, check, distance, finish, folder_with_data, log,
                       losses, mpirun, nccl_takes, nccl_train, npy, refused, run, safetensors, train, transport)

with folder_with_data():
    train("gpu_line1", "--steps", 20, "--log", "1.jsonl", "--save", "1.st")
    # The program itself checks the results of its collectives; a wrong element makes the loss NaN.
    for n in 2, 4:
        train(f"gpu_line{n}", "--steps", 20, "--log", f"{n}.jsonl", "--save", f"{n}.st")
        d = distance(f"{n}.jsonl", "1.jsonl")
        check(f"{n} ranks on one gpu train as one does", d < 1e-5, d)
        done = train(f"gpu_line{n}", "--steps", 20, "--save", "again.st", env={"EMULATED_GPUS": "2"})
        check("threads on two gpus hear of a faster way", not EMULATED or f"as in: mpirun -n {n}" in done.stderr, done.stderr)
        check(f"{n} ranks on two gpus have the bits of those on one", open("again.st", "rb").read() == open(f"{n}.st", "rb").read())
        train(CPU / f"line{n}", "--steps", 20, "--log", "cpu.jsonl")
        d = distance(f"{n}.jsonl", "cpu.jsonl")
        check(f"{n} ranks train as on processors", d < 1e-5, d)
    train("gpu_line2", "--steps", 8, "--checkpoint-dir", "c")
    train("gpu_line4", "--steps", 20, "--checkpoint-dir", "c", "--resume", "--log", "r.jsonl")
    d = max(
        abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(losses("r.jsonl"), losses("4.jsonl")[8:]))
    check("four ranks go on from two ranks' checkpoint", d < 1e-5, d)
    refused("a loss that is not a number", "step 4: the loss is not a number", "gpu_nan2", *DATA, "--log", "nan.jsonl")
    check("ends the log", [e["step"] for e in log("nan.jsonl")] == [0, 1, 2, 3])
    # Rank 1 has an invalid label; with the small one the loss of all ranks is NaN.  Only rank 1 reports it.
    labels = [3] * 100
    launchers = [("threads", (), {})]
    if nccl_takes(2):
        launchers += [("NCCL", mpirun(2), {"EMULATED_GPUS": "2"})]
    if HAS_PROCESSES:
        launchers += [("processes on one gpu", mpirun(2), ONE_GPU)]
    for bad in -1000, 1000:
        npy("bad.npy", labels[:40] + [bad] + labels[41:], (100,), "<i8")
        said = f"rank 1, step 3: linear  line.onnx:/fc/Gemm: an index is out of range: index {bad} (number 0) is not in -100..99"
        for way, launcher, env in launchers:
            for steps, every in (30, 100), (3, 100), (30, 3):
                done = refused(f"a label out of range at rank 1, {way}", said, "gpu_line2", "--input", "x=x.npy", "--input",
                               "labels=bad.npy", "--steps", steps, "--save", "bad.st", "--log", "bad.jsonl", "--checkpoint-dir",
                               "bad", "--checkpoint-every", every, launcher=launcher, env=env)
                check(f"nothing else is said, {way}", done.stderr.count("error:") == 1, done.stderr)
                check("its step is not in the log", [e["step"] for e in log("bad.jsonl")] == [0, 1], log("bad.jsonl"))
                check("nothing is saved of it", not os.path.exists("bad.st") and set(os.listdir("bad")) <= {".lock"})
            done = refused(f"one in evaluation, {way}", "rank 1, step 5: linear", "gpu_line2", *DATA, "--eval-input", "x=x.npy",
                           "--eval-input", "labels=bad.npy", "--eval-every", 5, "--log", "bad.jsonl", launcher=launcher, env=env)
            check(f"nothing else is said, {way}", done.stderr.count("error:") == 1, done.stderr)
            check("its step is not in the log", [e["step"] for e in log("bad.jsonl")] == [0, 1, 2, 3], log("bad.jsonl"))
    train("gpu_line2", "--steps", 3, "--trace", "t.json")
    # On one rank the rows are prefetched before their step, on two they are too few.
    for n in 1, 2:
        train(f"gpu_rows{n}", "--steps", 6, "--log", f"rows{n}.jsonl", "--shuffle", 1)
    d = distance("rows1.jsonl", "rows2.jsonl")
    check("rows that are copied ahead are the same rows", d < 1e-4, d)
    # Weights that go through pinned memory in pieces, there and back, are unchanged.
    train("gpu_big2", "--steps", 3, "--save", "big.st", "--checkpoint-dir", "big")
    train("gpu_big2", "--steps", 4, "--save", "gpu_big2.st", "--checkpoint-dir", "big", "--resume")
    (big, _), (big2, _) = safetensors("big.st"), safetensors("gpu_big2.st")
    check("a weight of 12 MB is read back as it was put", big["big"] == big2["big"] and len(set(big["big"][2])) > 200)

    train("gpu_square4", "--steps", 20, "--log", "q.jsonl", "--save", "q.st")
    d = distance("q.jsonl", "4.jsonl")
    check("ranks on two axes train as well", d < 1e-5, d)
    if HAS_PROCESSES:
        done = train("gpu_line2", "--steps", 20, "--log", "s.jsonl", launcher=mpirun(2), env=ONE_GPU)
        d = distance("s.jsonl", "2.jsonl")
        check("processes that share a gpu train, too", d < 1e-5, d)
        check("and say that it is slow", transport(done) == "staged", done.stderr)
        if EMULATED:
            refused("two that do not fit", "memory of gpu 0 for 2 ranks of", "gpu_line2", *DATA, launcher=mpirun(2),
                    env={"EMULATED_MEMORY": "600k"})

    if nccl_takes(2):
        two = {"EMULATED_GPUS": "2"}
        for program in "gpu_line2whole", "gpu_line2":
            nccl_train(2, program, "--steps", 20, "--log", "n.jsonl", "--save", "n.st", "--traffic", "n.json")
            d = distance("n.jsonl", "2.jsonl")
            check(f"{program}: processes with NCCL train as threads do", d < 1e-5, d)
            nccl_train(2, program, "--steps", 20, "--save", "called.st", "--traffic", "called.json",
                       env={"CUDA_LAUNCH_BLOCKING": "1"})
            check(f"{program}: what replayed collectives send is counted", "all_to_all" in open("n.json").read() and
                  open("n.json").read() == open("called.json").read(), open("n.json").read())
            check(f"{program}: replayed collectives give the same bits",
                  open("n.st", "rb").read() == open("called.st", "rb").read())
        # If one rank cannot replay, or is told not to, no rank does.
        for setting in "EMULATED_GRAPHS=0", "CUDA_LAUNCH_BLOCKING=1":
            with open("one.sh", "w") as f:
                f.write(f'#!/bin/sh\nif [ "${{PMI_RANK:-$RANK}}" = 1 ]; then export {setting}; fi\nexec "$@"\n')
            os.chmod("one.sh", 0o755)
            done = train("gpu_line2", "--steps", 20, "--save", "called.st", launcher=[*mpirun(2), "./one.sh"], env=two)
            check(f"{setting} on one rank: the same bits", open("n.st", "rb").read() == open("called.st", "rb").read())
            check(f"{setting} on one rank: says why", not EMULATED or "GRAPHS" not in setting or
                  done.stderr.count("may be slower: another rank cannot") == 1, done.stderr)
        nccl_train(2, "gpu_line2", "--steps", 3, "--trace", "t.json")
        # Rank 0 may write for longer than the stall limit.
        train("gpu_disk2", "--steps", 2, "--checkpoint-dir", "slow", "--checkpoint-every", 1, "--save", "slow.st", "--export",
              "slow.onnx", "--stall-timeout", 1, launcher=mpirun(2), env=two)
        # Evaluation enlarges scratch, so training is captured again.
        evaluated = ["--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 5]
        train("gpu_line2", "--steps", 20, "--log", "e.jsonl", *evaluated, launcher=mpirun(2), env=two)
        check("evaluation between steps changes nothing", losses("e.jsonl") == losses("n.jsonl"))
        done = run("gpu_nan2", *DATA, launcher=mpirun(2), env=two)
        check("all processes end at a NaN", done.returncode != 0 and done.stderr.count("not a number") == 1, done)
    if nccl_takes(4):
        nccl_train(4, "gpu_line4", "--steps", 20, "--log", "m.jsonl")
        d = distance("m.jsonl", "4.jsonl")
        check("four processes as well", d < 1e-5, d)
        nccl_train(4, "gpu_square4", "--steps", 20, "--log", "m.jsonl", "--save", "m.st")
        d = distance("m.jsonl", "4.jsonl")
        check("and on two axes", d < 1e-5, d)
finish()
