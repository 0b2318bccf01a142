"""One rank on a GPU: the losses of the CPU, captured steps against called ones, checkpoints, NaN."""

import json
import os
import signal
import subprocess
import time

from rt_common import CPU, DATA, EMULATED, PROGRAMS, check, distance, finish, folder_with_data, log, losses, npy, refused, run, safetensors, train

with folder_with_data():
    # PROGRAMS / an absolute path is that path.
    train(CPU / "line1", "--steps", 30, "--log", "cpu.jsonl", "--save", "cpu.st")
    for program in "gpu_line1", "gpu_line1whole":
        train(program, "--steps", 30, "--log", "gpu.jsonl", "--save", "gpu.st", "--export", "gpu.onnx")
        d = distance("gpu.jsonl", "cpu.jsonl")
        check(f"{program} trains as processors do", d < 1e-5, d)
        gpu, cpu = safetensors("gpu.st")[0], safetensors("cpu.st")[0]
        check("weights that are drawn, and filled, are the same", gpu["big"] == cpu["big"])
        check("all weights are there", gpu.keys() == cpu.keys())
        # With CUDA_LAUNCH_BLOCKING every step runs call by call; otherwise it is replayed from the third on.
        train(program, "--steps", 30, "--log", "called.jsonl", "--save", "called.st",
              env={"CUDA_LAUNCH_BLOCKING": "1"})
        check(f"{program}: replayed steps have the bits of called ones", losses("called.jsonl") == losses("gpu.jsonl"))
        check("and so do the weights", open("called.st", "rb").read() == open("gpu.st", "rb").read())
    done = train("gpu_line1", "--steps", 30, "--log", "called.jsonl", env={"EMULATED_GRAPHS": "0"})
    check("without graphs steps are called", losses("called.jsonl") == losses("gpu.jsonl"))
    check("and it says so, once", not EMULATED or done.stderr.count("steps are not recorded, and so may be slower: making") == 1,
          done.stderr)
    refused("a call that cannot be recorded", "hint: it failed while the step was recorded; CUDA_LAUNCH_BLOCKING=1", "gpu_allocates1",
            *DATA)
    train("gpu_allocates1", "--steps", 5, env={"CUDA_LAUNCH_BLOCKING": "1"})
    entries = log("gpu.jsonl")
    check("every step is in the log, once", [e["step"] for e in entries] == list(range(30)))
    check("a step takes time", all(e["step_ms"] > 0 for e in entries))

    # An interrupted run continues as if uninterrupted.
    train("gpu_line1", "--steps", 30, "--checkpoint-dir", "c", "--checkpoint-every", 4, "--log", "whole.jsonl", "--save", "whole.st")
    train("gpu_line1", "--steps", 10, "--checkpoint-dir", "d", "--log", "part.jsonl")
    train("gpu_line1", "--steps", 30, "--checkpoint-dir", "d", "--resume", "--log", "part.jsonl", "--save", "part.st")
    check("checkpoints do not change training", losses("whole.jsonl") == losses("part.jsonl"))
    check("a resumed run ends with the same weights", open("whole.st", "rb").read() == open("part.st", "rb").read())
    # The CPU reads a GPU's checkpoint.
    train(CPU / "line1", "--steps", 31, "--checkpoint-dir", "d", "--resume", "--log", "on.jsonl")
    train("gpu_line1", "--steps", 31, "--checkpoint-dir", "c", "--resume", "--log", "on2.jsonl")
    d = distance("on.jsonl", "on2.jsonl")
    check("a checkpoint is one for any target", d < 1e-5, d)

    # Evaluation runs another graph between steps.
    train("gpu_line1", "--steps", 12, "--log", "eval.jsonl", "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy",
          "--eval-every", 5)
    train(CPU / "line1", "--steps", 12, "--log", "cpueval.jsonl", "--eval-input", "x=x.npy", "--eval-input",
          "labels=y.npy", "--eval-every", 5)
    check("evaluation does not change training", losses("eval.jsonl") == losses("whole.jsonl")[:12])
    evals = [[(e["step"], e["eval_loss"]) for e in log(f) if "eval_loss" in e] for f in ("eval.jsonl", "cpueval.jsonl")]
    check("and says what processors say", [s for s, _ in evals[0]] == [4, 9, 11] == [s for s, _ in evals[1]]
          and all(abs(a - b) < 1e-5 * abs(b) for (_, a), (_, b) in zip(*evals)), evals)

    # The trace has every operation of every step, and its timestamps change no result.
    train("gpu_line1", "--steps", 5, "--trace", "t.json", "--log", "traced.jsonl")
    events = [e for e in json.load(open("t.json"))["traceEvents"] if e["ph"] == "X" and e["cat"] == "op"]
    check("traced steps have the same losses", losses("traced.jsonl") == losses("whole.jsonl")[:5])
    check("the trace has 5 steps of 2 micro-batches and 36 operations after", len(events) == 5 * (2 + 36), len(events))
    train("gpu_line1", "--steps", 5, "--trace", "te.json", "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy")
    spans = [e for e in json.load(open("te.json"))["traceEvents"] if e["ph"] == "X"]
    check("evaluation is traced, too", len(spans) > len(events) and all(e["ts"] >= 0 and e["dur"] >= 0 for e in spans))
    check("operations follow each other", all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in zip(events, events[1:])))

    # Errors in the data are found in the GPU and reported at the end of the step.
    y = [3] * 100
    y[40] = 1000
    npy("bad.npy", y, (100,), "<i8")
    done = refused("a label out of range", "step 3: linear  line.onnx:/fc/Gemm: an index is out of range: "
                   "index 1000 (number 0) is not in -100..99",
                   "gpu_line1", "--input", "x=x.npy", "--input", "labels=bad.npy", "--steps", 30, "--save", "bad.st",
                   "--checkpoint-dir", "e", "--checkpoint-every", 3)
    check("nothing is saved of it", not os.path.exists("bad.st") and not os.listdir("e"), os.listdir("e"))

    # Rows that cannot be read end the job when the previous step is reported, as without prefetching.
    ids = [0] * 100
    ids[40] = 2**32 - 1
    npy("ids.npy", ids, (100,), "<u4")
    for program in "gpu_ids1", "gpu_ids2":
        for flags in [], ["--trace", "t.json"], ["--checkpoint-dir", "h", "--checkpoint-every", 2]:
            refused("rows that cannot be read", "error: step 3: 'ids.npy': 4294967295 does not fit input 'ids'", program, *DATA,
                    "--tokens", "ids=ids.npy", "--log", "ids.jsonl", *flags)
            check("the steps before are in the log", [e["step"] for e in log("ids.jsonl")] == [0, 1], log("ids.jsonl"))
    check("and so is the checkpoint there", "step-000000000002.safetensors" in os.listdir("h"), os.listdir("h"))

    # A NaN in the inputs makes the loss NaN; its step is logged, the running one is not.
    x = [0.0] * 500
    x[205] = float("nan")
    npy("nan.npy", x, (100, 5))
    refused("a loss that is not a number", "step 3: the loss is not a number", "gpu_line1", "--input", "x=nan.npy",
            "--input", "labels=y.npy", "--steps", 30, "--log", "nan.jsonl", "--save", "nan.st", "--checkpoint-dir", "f")
    check("the log ends with it", [e["step"] for e in log("nan.jsonl")] == [0, 1, 2], log("nan.jsonl"))
    check("and nothing is saved", not os.path.exists("nan.st") and not os.listdir("f"), os.listdir("f"))

    # SIGTERM ends the step and all its work.
    process = subprocess.Popen([PROGRAMS / "gpu_line1", *DATA, "--steps", "100000000", "--log", "sig.jsonl", "--checkpoint-dir", "g",
                                "--save", "sig.st"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (os.path.exists("sig.jsonl") and open("sig.jsonl").read().count("\n") > 20):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    steps = len(log("sig.jsonl"))
    check("SIGTERM ends with 0", process.returncode == 0 and f"stopped by SIGTERM after {steps} of" in said, said)
    check("with a checkpoint of the last step in the log", os.listdir("g") == [f"step-{steps}.safetensors"]
          or any(str(steps) in name for name in os.listdir("g")), (steps, os.listdir("g")))
    check("and the weights", os.path.exists("sig.st"))

    text = json.loads(run("gpu_line1", "--describe").stdout)
    check("--describe says versions", "runtime" in text["cuda"] and text["target"] == "cuda:sm_90", text)
finish()
