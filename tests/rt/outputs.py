"""Outputs: log, plain progress lines, saved and exported weights, event files, trace, evaluation."""

import collections
import glob
import json
import os
import struct
import subprocess
import time

from common import DATA, PROGRAMS, check, finish, folder_with_data, log, losses, mpirun, npy, refused, run, safetensors, train


def varint(raw, at):
    x = shift = 0
    while True:
        x |= (raw[at] & 127) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 128:
            return x, at


def fields(raw):
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        if key & 7 == 0:
            value, at = varint(raw, at)
        else:
            n = {1: 8, 5: 4}.get(key & 7)
            if n is None:
                n, at = varint(raw, at)
            value, at = raw[at:at + n], at + n
        yield key >> 3, value


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 & -(crc & 1))
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(path):
    raw, at = open(path, "rb").read(), 0
    while at < len(raw):
        n = struct.unpack_from("<Q", raw, at)[0]
        body = raw[at + 12:at + 12 + n]
        check("checksums of an event", struct.unpack_from("<I", raw, at + 8)[0] == crc32c(raw[at:at + 8]) and
              struct.unpack_from("<I", raw, at + 12 + n)[0] == crc32c(body))
        yield dict(fields(body))
        at += 16 + n


with folder_with_data():
    def rows(n, first=0):
        for name, descr, size in ("x", "<f4", 20), ("y", "<i8", 8):
            data = open(f"{name}.npy", "rb").read()[-100 * size:]
            npy(f"{name}{n}.npy", (), (n, 5) if name == "x" else (n,), descr, body=data[first * size:(first + n) * size])
        return ["--eval-input", f"x=x{n}.npy", "--eval-input", f"labels=y{n}.npy"]

    done = train("line2", "--steps", 20, "--log", "log.jsonl", "--tensorboard", "tb", "--save", "w.safetensors", "--export",
                 "m.onnx", "--trace", "t.json", "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 8)
    lines = log("log.jsonl")
    check("a line per step", [l["step"] for l in lines] == list(range(20)))
    check("its fields", list(lines[0]) == ["step", "loss", "grad_norm", "lr", "step_ms", "samples_per_s"], lines[0])
    check("evaluation after every 8 and the last", [l["step"] for l in lines if "eval_loss" in l] == [7, 15, 19])
    check("a plain line per step", done.stdout.count("\n") == 20 and "step 20/20  loss " in done.stdout
          and "\r" not in done.stdout, done.stdout)
    speed = ["steps/s" in line for line in done.stdout.splitlines()]
    check("the first step, which prepares kernels, has no speed", speed == [False] + 19 * [True], done.stdout)
    done = train("line2", "--steps", 1)
    check("a single step has", "steps/s" in done.stdout and " in 0s" in done.stdout, done.stdout)

    # Evaluation changes neither the log nor the weights.
    train("line2", "--steps", 20, "--log", "plain.jsonl", "--save", "plain.safetensors")
    check("evaluation changes nothing", open("plain.safetensors", "rb").read() == open("w.safetensors", "rb").read())

    # The time of a step with a deferred update is that of other steps: it sleeps for 2 * 20 ms, as does each of the 12
    # batches of evaluation, and the sum over all steps is no more than the time of the run.
    train("line2", "--steps", 6, "--log", "plain.jsonl", "--save", "plain.safetensors")
    for n in 1, 2:
        begun = time.monotonic()
        train(f"owes{n}", "--steps", 6, "--log", "owes.jsonl", "--save", "owes.safetensors", "--eval-input", "x=x.npy",
              "--eval-input", "labels=y.npy", "--eval-every", 3)
        passed, ms = 1e3 * (time.monotonic() - begun), [l["step_ms"] for l in log("owes.jsonl")]
        check(f"a step that owes, of {n} ranks: its time", len(ms) == 6 and min(ms) >= 40 and sum(ms) <= passed - 12 * 40, ms,
              passed)
    check("what is deferred is done: norms and weights", losses("owes.jsonl") == losses("plain.jsonl") and
          open("owes.safetensors", "rb").read() == open("plain.safetensors", "rb").read(), losses("owes.jsonl"))

    # After 25 steps the next six read rows 0 to 95, as evaluation does; the loss adds noise of up to 0.01.
    train("line2", "--steps", 25, "--checkpoint-dir", "ck", "--log", "e.jsonl", *rows(96))
    train("line2", "--steps", 31, "--checkpoint-dir", "ck", "--resume", "--lr", 0, "--log", "e.jsonl")
    lines = log("e.jsonl")
    mean = sum(l["loss"] for l in lines[25:]) / 6
    check("evaluation is of the weights after the step", 0 <= mean - lines[24]["eval_loss"] <= 0.01, mean, lines[24])

    # --eval-only: over all rows, with a partial last batch, with less than one batch, and the steps of a checkpoint.
    def evaluated(program, data, *flags):
        done = run(program, "--eval-only", "--log", "only.jsonl", *data, *flags)
        check(f"--eval-only {flags}", done.returncode == 0 and "eval_loss " in done.stdout, done.stderr)
        return log("only.jsonl")[-1]

    of = {n: evaluated("line1", rows(n, first))["eval_loss"] * n for n, first in ((96, 0), (4, 96), (100, 0), (7, 0), (93, 7))}
    for whole, parts in (100, (96, 4)), (100, (7, 93)):
        check(f"evaluation of {whole} rows is of {parts}", abs(of[whole] - sum(of[n] for n in parts)) < 1e-5 * of[whole], of)
    resumed = evaluated("line2", rows(96), "--resume", "--checkpoint-dir", "ck")
    check("--eval-only of a checkpoint", resumed["steps"] == 31, resumed)
    for flags in ["--steps", 3], ["--epochs", 1], [*DATA], ["--eval-every", 2], ["--keep", 2], ["--trace", "t"], ["--timings"]:
        refused(f"--eval-only {flags[0]}", f"{flags[0]} has no effect with --eval-only", "line1", "--eval-only", *rows(4), *flags,
                status=2)
    refused("--eval-only without rows", "--eval-only needs --eval-input", "line1", "--eval-only", status=2)

    tensors, _ = safetensors("w.safetensors")
    lines = log("log.jsonl")
    check("saved: floating weights, under their names, whole", {k: v[:2] for k, v in tensors.items()} == {
        "w": ("F32", [5]), 'b "quoted"': ("F32", []), "big": ("F32", [20000]), "part": ("F32", [20])})
    w, b = struct.unpack("<5f", tensors["w"][2]), struct.unpack("<f", tensors['b "quoted"'][2])[0]
    part = struct.unpack("<20f", tensors["part"][2])
    check("a split weight is whole", len(set(part)) == 20 and max(map(abs, part)) <= 1, part)
    big = struct.unpack("<20000f", tensors["big"][2])
    mean = sum(big) / 20000
    check("normal(0, 0.02)", abs(mean) < 0.001 and abs((sum(x * x for x in big) / 20000) ** 0.5 - 0.02) < 0.001)

    m = open("m.onnx", "rb").read()
    check("exported: w as f16, b as f64, the rest as it was", m[8:18] == struct.pack("<5e", *w) and
          m[32:40] == struct.pack("<d", b) and m[:8] + m[18:32] + m[40:] == bytes([*range(8), *range(18, 32), *range(40, 64)]), m)

    files = glob.glob("tb/events.out.tfevents.*")
    found = list(events(files[0]))
    check("event files", found[0][3] == b"brain.Event:2" and [e[2] for e in found[1:]] == list(range(20)), found[:2])
    values = {}
    for number, value in fields(found[20][5]):
        v = dict(fields(value))
        values[v[1].decode()] = struct.unpack("<f", v[2])[0]
    check("loss in the event file", abs(values["loss"] - lines[19]["loss"]) < 1e-6 and "eval_loss" in values, values)

    trace = json.load(open("t.json"))["traceEvents"]
    spans = [e for e in trace if e["ph"] == "X"]
    check("trace: both ranks, operations, communication and segments",
          {(e["pid"], e["tid"]) for e in spans} == {(pid, tid) for pid in (0, 1) for tid in (0, 1, 2)})
    check("trace: names and places", {"name": "linear", "at": "line.onnx:/fc/Gemm"} in
          [{"name": e["name"], "at": e["args"]["at"]} for e in spans], spans[:3])
    check("trace: 20 steps of 2 micro-batches, and 3 evaluations of 7", sum(e["name"] == "linear" and e["pid"] == 1 for e in spans)
          == 20 * 2 + 3 * 7 * 2)
    segments = [e for e in spans if e["cat"] == "segment" and e["pid"] == 1]
    check("trace: the segments of a step are its slices", [(e["name"], e["args"]["step"], e["args"]["micro_batch"])
          for e in segments[:4]] == [("micro", step, micro) for step in (0, 1) for micro in (0, 1)], segments[:4])
    comm = [e for e in spans if e["cat"] == "comm" and e["pid"] == 1]
    check("trace: what is sent says for which operation, and in which step", {e["args"]["step"] for e in comm
          if e["name"] == "all_reduce" and e["args"]["at"] == "grads of /fc"} == set(range(20)), comm[:3])
    check("trace: time goes on", all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans))

    # --timings sums the same events by operation, those of training only, also beyond the events that a trace keeps.
    def table(*flags, program="line2"):
        done = train(program, "--steps", 10, "--timings", *flags)
        lines = done.stdout[done.stdout.index("times on rank 0 of 2, in ms of a step (mean of 9 steps after the first)\n"):].splitlines()[1:]
        heads = [i for i, line in enumerate(lines) if line.split()[:3] == ["ms", "share", "calls"]]
        check("timings: the step is the last line", lines[-1].endswith("the step, from its first operation to the end of its last"),
              lines)
        # A program without a table of work has none of its rates.
        return [[(float(ms), float(share[:-1]), float(calls), name) for ms, share, calls, flops, rate, peak, limit, name in
                 (line.split(None, 7) for line in part if "%" in line) if {flops, rate, peak, limit} == {"-"}]
                for part in (lines[heads[0]:heads[1]], lines[heads[1]:-1])]

    kinds, ops = table("--trace", "timed.json", "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 2)
    spans = [e for e in json.load(open("timed.json"))["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    check("timings: longest first, and shares of all", all(x[0] >= y[0] for t in (kinds, ops) for x, y in zip(t, t[1:]))
          and abs(sum(row[1] for row in kinds) - 100) < 0.1 * len(kinds), kinds)
    of_trace = collections.Counter()
    for e in spans:
        if e["cat"] in ("op", "comm"): of_trace[e["name"]] += 1
    plain, _ = table()
    calls = {row[3]: row[2] for row in kinds}

    def alike(rows):  # the event of a transfer may come after its step, and is then missing of the last one
        return {row[3] for row in rows} == calls.keys() and all(abs(row[2] - calls[row[3]]) < 0.25 for row in rows)

    check("timings: the same calls without --trace and evaluations", alike(plain), plain, kinds)
    check("timings: no more calls than the trace has events", all(n * 9 <= of_trace[name] for name, n in calls.items()), calls)
    few, _ = table(program="few2")
    check("timings: of all events, of which few2 keeps 50", alike(few), few, kinds)

    # A limited number of events is kept of each thread; the 20 slices are below it.
    done = train("few2", "--steps", 10, "--trace", "few.json")
    events = [e for e in json.load(open("few.json"))["traceEvents"] if e["ph"] == "X"]
    kept = {(rank, cat): sum(e["pid"] == rank and e["cat"] == cat for e in events) for rank in (0, 1)
            for cat in ("op", "comm", "segment")}
    check("trace: the first events of a thread", kept == {(rank, cat): 20 if cat == "segment" else 50 for rank, cat in kept}, kept)
    check("trace: which threads have more is said", "first 50 events of a thread of a rank, and not all of: operations, "
          "communication\n" in done.stderr, done.stderr)

    # Traffic is per step, without evaluation, of all ranks: the collectives of train_update in regression.c.
    for n, beside in (2, ["--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 2]), (4, []), (1, []):
        train(f"line{n}", "--steps", 5, "--traffic", "sent.json", *beside)
        sent = json.load(open("sent.json"))
        # The last terms are of check_in_flight, three of each.
        each = {"all_reduce": (3, 4 * 20000 + 4 * 8 + 8), "all_gather": (1 + 3, n * 4 * 4 * (1 + 3)),
                "reduce_scatter": (2 + 3, 4 * 2 * n * 3000 + 8 * n + 3 * 4 * 2 * n * 5),
                "all_to_all": (4 * 6 + 3, 6 * 6 * n * n * (1 + 2 + 4 + 8) + 3 * 6 * n * n * 4)}
        check(f"traffic of {n} ranks: of 5 steps", sent["ranks"] == n and sent["steps"] == 5, sent)
        check(f"traffic of {n} ranks: bytes", sent["comm_bytes"] == {
            **{k: n * b if n > 1 else 0 for k, (_, b) in each.items()}, "move": 0}, sent)
        check(f"traffic of {n} ranks: calls", {s["kind"]: s["calls"] for s in sent["sends"] if s["phase"] == "update"} ==
              {k: n * c for k, (c, _) in each.items() if n > 1} and len(sent["sends"]) == (4 if n > 1 else 0), sent)
    # The peak is between 0 and the slab's size: weights are always in use.
    for n in 1, 2, 4:
        train(f"line{n}", "--steps", 3, "--memory", "used.json")
        used = json.load(open("used.json"))
        check(f"memory of {n} ranks", used["ranks"] == n == len(used["per_rank"]) and all(
            0 < r["peak_bytes"] <= r["touched_bytes"] < r["slab_bytes"] + used["page_bytes"] and "peak_op" in r
            for r in used["per_rank"]), used)
    # Writes of checkpoints read the slab by system calls, which fail at protected pages.
    os.mkdir("watched")
    train("line2", "--steps", 4, "--memory", "used.json", "--checkpoint-dir", "watched", "--checkpoint-every", 1, "--keep", 9)
    check("checkpoints beside --memory", len(os.listdir("watched")) == 4, os.listdir("watched"))
    done = refused("memory of ranks that are processes", "--memory watches ranks of one process", "line2", *DATA, "--memory",
                   "used.json", launcher=mpirun(2))
    check("memory of ranks that are processes: said once", done.stderr.count("error: ") == 1, done.stderr)
    refused("two outputs in one file", "--trace and --traffic are the same file", "line1", *DATA, "--trace", "one.json",
            "--traffic", "one.json", status=2)

    # A log that is truncated meanwhile, as by log rotation, then has whole lines only.
    job = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "1500", "--log", "rotated.jsonl"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    while job.poll() is None and (not os.path.exists("rotated.jsonl") or os.path.getsize("rotated.jsonl") < 2000):
        time.sleep(0.001)
    os.truncate("rotated.jsonl", 0)
    check("a job whose log is emptied ends", job.wait() == 0)
    rest = [x["step"] for x in log("rotated.jsonl")]
    check("its log has the lines since then", 0 < len(rest) < 1500 and rest == list(range(rest[0], 1500)), rest[:3], rest[-3:])

    # Schedules: warm-up to the rate, then down to the minimum.
    train("cosine1", "--steps", 12, "--lr", 0.01, "--log", "lr.jsonl")
    lr = [l["lr"] for l in log("lr.jsonl")]
    check("warm-up", all(abs(lr[i] - 0.01 * (i + 1) / 4) < 1e-9 for i in range(4)), lr)
    check("cosine", abs(lr[4] - 0.01) < 1e-9 and abs(lr[8] - 0.0055) < 1e-9 and lr[11] > 0.001 and lr == sorted(lr[:4]) + sorted(lr[4:], reverse=True), lr)
    train("linear1", "--epochs", 1, "--lr", 0.7, "--log", "lr.jsonl")
    lr = [l["lr"] for l in log("lr.jsonl")]
    check("linear", all(abs(x - 0.7 * (1 - i / 7)) < 1e-8 for i, x in enumerate(lr)) and len(lr) == 7, lr)

    # The seed reaches the graph, and the random weights.
    def saved(*flags):
        train("line1", "--steps", 3, "--save", "s.st", "--log", "s.jsonl", *flags)
        return safetensors("s.st")[0], log("s.jsonl")[0]["loss"]
    one, two, again = saved(), saved("--seed", 2), saved("--seed", 1)
    check("another seed, other weights", one[0]["big"] != two[0]["big"] and one[1] != two[1])
    check("the same seed, the same", one == again)

    # A link is followed, also to a file that does not exist yet.
    os.mkdir("there")
    os.symlink("there/a.st", "one")
    os.symlink("one", "two")
    for _ in range(2):
        train("line1", "--steps", 2, "--save", "two")
        check("a link stays a link", os.path.islink("one") and os.path.islink("two") and not os.path.islink("there/a.st")
              and "w" in safetensors("there/a.st")[0] and os.listdir("there") == ["a.st"], os.listdir("there"))

    # A log that cannot be written does not end the training, but its exit status says so.
    done = run("line1", *DATA, "--steps", 5, "--log", "/dev/full", "--save", "full.st")
    check("a full disk for the log", done.returncode == 1 and "training goes on" in done.stderr and
          os.path.exists("full.st"), done.returncode, done.stderr)

finish()
