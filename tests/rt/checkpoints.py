"""Checkpoints: resuming is exact, after any failure of process, file or disk.

KILLS and FLIPS in the environment ask for more than the few of an ordinary run.
"""

import os
import pathlib
import random
import re
import resource
import struct
import subprocess
import time

from common import (DATA, HAS_MPI, PROGRAMS, check, finish, folder_with_data, log, losses, mpirun, npy, refused, run,
                    safetensors, train)

random.seed(11)


def xxh64(data):
    """Returns XXH64 with seed 0, from its specification."""
    p = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
    mask = (1 << 64) - 1
    rotate = lambda x, r: (x << r | x >> (64 - r)) & mask
    step = lambda acc, lane: rotate((acc + lane * p[1]) & mask, 31) * p[0] & mask
    acc, at = [(p[0] + p[1]) & mask, p[1], 0, -p[0] & mask], 0
    if len(data) >= 32:
        for at in range(0, len(data) - 31, 32):
            acc = [step(a, lane) for a, lane in zip(acc, struct.unpack_from("<4Q", data, at))]
        at += 32
        h = sum(rotate(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & mask
        for a in acc:
            h = ((h ^ step(0, a)) * p[0] + p[3]) & mask
    else:
        h = p[4]
    h = (h + len(data)) & mask
    for size, code, mix in (8, "<Q", lambda h, x: rotate(h ^ step(0, x), 27) * p[0] + p[3]), (
            4, "<I", lambda h, x: rotate(h ^ x * p[0] & mask, 23) * p[1] + p[2]), (
            1, "<B", lambda h, x: rotate(h ^ x * p[4] & mask, 11) * p[0]):
        while len(data) - at >= size:
            h = mix(h, struct.unpack_from(code, data, at)[0]) & mask
            at += size
    for shift, by in (33, p[1]), (29, p[2]), (32, 1):
        h = (h ^ h >> shift) * by & mask
    return h


def names(folder="ck"):
    return sorted(os.listdir(folder))


with folder_with_data():
    ck = ["--checkpoint-dir", "ck", "--checkpoint-every", 5]
    more = ["--shuffle", 4, "--seed", 9]
    train("line2", "--steps", 40, *more, "--log", "want.jsonl", "--save", "want.st")
    want = open("want.st", "rb").read()

    # --steps is the total; seed and order of the rows come from the checkpoint.
    said = train("line2", "--steps", 12, *more, *ck, "--resume", "--log", "log.jsonl").stderr
    check("without a checkpoint it says so", "no checkpoint in 'ck': starting from step 0" in said, said)
    check("the last step is kept too", names() == [f"step-{n:012}.safetensors" for n in (5, 10, 12)], names())
    said = train("line2", "--steps", 40, *ck, "--keep", 2, "--resume", "--log", "log.jsonl", "--save", "got.st").stderr
    check("resuming says from where", "resuming after step 12" in said, said)
    check("resumed weights are bit-equal", open("got.st", "rb").read() == want)
    check("the log goes on", losses("log.jsonl") == losses("want.jsonl"))
    check("--keep 2", names() == [f"step-{n:012}.safetensors" for n in (35, 40)], names())
    said = train("line2", "--steps", 40, *ck, "--resume", "--save", "got.st", "--log", "log.jsonl").stderr
    check("nothing is left to do", "nothing to train: the checkpoint is at step 40, and training ends at step 40" in said
          and open("got.st", "rb").read() == want, said)
    check("and the log stays", losses("log.jsonl") == losses("want.jsonl"))
    said = train("line2", "--steps", 41, *ck, "--resume", "--seed", 1, "--shuffle", 5).stderr
    check("another seed is pointed out", "--seed 1 replaces the checkpoint's 9" in said and
          "the rows follow in the order of --shuffle 5, not in that of the checkpoint" in said, said)

    # Batches of another size read the rows after the last one that was read.
    train("line1", "--steps", 4, "--lr", 0, "--shuffle", 3, "--checkpoint-dir", "rows")
    check("rows read", safetensors("rows/step-000000000004.safetensors")[1]["rows_read"] == "64")
    train("half1", "--steps", 15, "--lr", 0, "--shuffle", 3, "--log", "small.jsonl")
    train("half1", "--steps", 7, "--lr", 0, "--checkpoint-dir", "rows", "--resume", "--log", "rows.jsonl")
    got, want_rows = [x["loss"] for x in log("rows.jsonl")], [x["loss"] for x in log("small.jsonl")]

    def of_rows(got, want):  # the loss includes noise that depends on the step
        return len(got) == len(want) and all(abs(a - b) < 1e-3 * b for a, b in zip(got, want))
    check("smaller batches read the next rows", of_rows(got, want_rows[8:11]), got, want_rows)
    train("half1", "--epochs", 1, "--lr", 0, "--checkpoint-dir", "rows", "--resume", "--log", "rows.jsonl")
    got = [x["loss"] for x in log("rows.jsonl")]
    check("an epoch ends with its rows", of_rows(got, want_rows[8:13]), got, want_rows)
    train("line1", "--steps", 10, "--lr", 0, "--checkpoint-dir", "rows", "--resume", "--log", "rows.jsonl")
    check("and back", safetensors("rows/step-000000000010.safetensors")[1]["rows_read"] == str(64 + 5 * 8 + 16))

    # A checkpoint of an older nnaot, without the number of rows: as many as steps of this batch read.
    path = pathlib.Path("rows/step-000000000010.safetensors")
    data = bytearray(path.read_bytes())
    length = 8 + int.from_bytes(data[:8], "little")
    sum_at = data.index(b'"header":"') + 10
    for entry in re.finditer(rb'"(rows_read|lr_steps|data:[^"]*)":"[^"]*",', bytes(data[:length])):
        data[entry.start():entry.end()] = b" " * (entry.end() - entry.start())
    data[sum_at:sum_at + 16] = b"0" * 16
    data[sum_at:sum_at + 16] = b"%016x" % xxh64(bytes(data[:length]))
    path.write_bytes(data)
    npy("half.npy", [0] * 250, (50, 5))
    npy("labels.npy", [0] * 50, (50,), "<i8")
    said = train("line1", "--steps", 11, "--lr", 0, "--checkpoint-dir", "rows", "--resume",
                 data=["--input", "x=half.npy", "--input", "labels=labels.npy"]).stderr
    check("an older checkpoint", "has no number of rows: 160 are taken as read" in said and "warning" not in said
          and "the data has 50 rows; when the checkpoint was written it had 100" in said, said)

    # Other data than the checkpoint's is said, file by file; another name is not.
    rows = pathlib.Path("x.npy").read_bytes()

    def resumed(x, *more, folder="data"):
        for path in pathlib.Path(folder).glob("*"):
            path.unlink()
        for step in (2, 3):
            data = [f"x={x}", *more] if step == 3 else ["x=x.npy"]
            done = run("line1", *(f for file in [*data, "labels=y.npy"] for f in ("--input", file)), "--steps", step,
                       "--checkpoint-dir", folder, *(["--resume"] if step == 3 else []))
            check("it trains", done.returncode == 0, done.stderr)
        return [line.partition("warning: ")[2] for line in done.stderr.splitlines() if "warning" in line], done.stderr

    check("the same data", resumed("x.npy")[0] == [])
    pathlib.Path("renamed.npy").write_bytes(rows)
    check("data with another name", resumed("renamed.npy")[0] == [])
    pathlib.Path("other.npy").write_bytes(rows[:-1] + bytes([rows[-1] ^ 1]))
    differs = "the data of input 'x' is other data: "
    said = resumed("other.npy")[0]
    when = "when the checkpoint was written"
    check("other contents", said == [f"{differs}'other.npy' has other contents than 'x.npy' had {when}"], said)
    npy("f64.npy", [0.5] * 500, (100, 5), "<f8")
    said = resumed("f64.npy")[0]
    size = os.path.getsize("f64.npy")
    check("other bytes", said == [f"{differs}'f64.npy' has {size} bytes, and {when} 'x.npy' had {len(rows)}"], said)
    npy("x1.npy", [0.5] * 250, (50, 5))
    npy("x2.npy", [0.5] * 250, (50, 5))
    said = resumed("x1.npy", "x=x2.npy")[0]
    check("more files", said == [f"{differs}'x1.npy' has 50 rows, and {when} 'x.npy' had 100",
                                f"input 'x' has more files than {when}"], said)
    meta = safetensors("data/step-000000000003.safetensors")[1]
    check("fingerprints of the data", [meta[f"data:x:{i}"].split()[::3] for i in (0, 1)] == [["50", "x1.npy"], ["50", "x2.npy"]]
          and meta["data:labels:0"].split()[2] == f"{xxh64(pathlib.Path('y.npy').read_bytes()):016x}", meta)

    # The horizon of the learning rate is that of the first run.
    def rates(*flags):
        said = train("cosine1", "--log", "lr.jsonl", "--checkpoint-dir", "lr", *flags).stderr
        return [x["lr"] for x in log("lr.jsonl")], said
    whole = rates("--steps", 12)[0]
    rates("--steps", 6, "--lr-steps", 12)
    got, said = rates("--steps", 12, "--resume")
    check("--lr-steps outlives the run that named it", got == whole and "schedule" not in said, got, whole, said)
    rates("--steps", 6)
    got, said = rates("--steps", 12, "--resume")
    check("the checkpoint's horizon holds, and that is said", got[6:] == [0.001] * 6 and "goes on 6 steps" in said, got, said)
    got, said = rates("--steps", 14, "--lr-steps", 14, "--resume")
    check("another one is said", "--lr-steps 14 replaces the checkpoint's 6" in said and got[13] > 0.001, got, said)

    # A log that is ahead of the checkpoint is truncated, with a partial last line.
    lines = open("want.jsonl").read().splitlines(True)
    for f in names():
        os.remove(f"ck/{f}")
    train("line2", "--steps", 10, *more, *ck)
    open("log.jsonl", "w").write("".join(lines[:17]) + lines[17][:20])
    train("line2", "--steps", 40, *ck, "--resume", "--log", "log.jsonl")
    check("a log that ran ahead", losses("log.jsonl") == losses("want.jsonl"))

    # A run without --resume does not mix with the checkpoints in its folder.
    said = train("line2", "--steps", 3, "--checkpoint-dir", "ck").stderr
    new = [n for n in names() if n.endswith(".safetensors")]
    check("an earlier run is set aside", new == ["step-000000000003.safetensors"] and
          "checkpoints of an earlier run in 'ck' are now called *.old" in said, names(), said)
    said = train("line2", "--steps", 4, "--checkpoint-dir", "ck").stderr
    check("so is a single checkpoint", "1 checkpoint of an earlier run in 'ck' is now called *.old" in said, said)
    train("line2", "--steps", 3, "--checkpoint-dir", "ck")

    # A checkpoint is a safetensors file, of whole tensors.
    tensors, meta = safetensors("ck/step-000000000003.safetensors")
    check("metadata", meta["step"] == "3" and meta["rows"] == "100", meta)
    check("tensors", tensors["weight/part"][:2] == ("F32", [20]) and tensors["state/v"][:2] == ("F32", [6])
          and tensors["weight/count"][0] == "I64", {k: v[:2] for k, v in tensors.items()})
    done = refused("a checkpoint of another program", "'weight/big' is f32[20000] in it, here f32[1]", "line4whole", *DATA,
                   "--checkpoint-dir", "ck", "--resume")
    check("is not a damaged one", "damaged" not in done.stderr, done.stderr)

    # Other numbers of ranks resume from it: every shard is correct, also of split weights.
    train("line1", "--steps", 40, "--save", "one.st", "--log", "one.jsonl")
    for before, after in (1, 4), (4, 1), (2, 4), (4, 2):
        os.system("rm -rf ck")
        train(f"line{before}", "--steps", 25, *ck)
        train(f"line{after}", "--steps", 40, *ck, "--resume", "--save", "other.st", "--log", "other.jsonl")
        one, other = safetensors("one.st")[0], safetensors("other.st")[0]
        check(f"{after} ranks go on from {before}: split weights", all(one[k] == other[k] for k in ("part", "big")))
        d = max(abs(a[1] - b[1]) / abs(b[1]) for a, b in zip(losses("other.jsonl"), losses("one.jsonl")[25:]))
        check(f"{after} ranks go on from {before}: losses", d < 1e-4, d)
    if HAS_MPI:
        os.system("rm -r ck")
        train("line2", "--steps", 20, *more, *ck)
        train("line2", "--steps", 40, *ck, "--resume", "--save", "got.st", launcher=mpirun(2))
        check("processes go on where threads were", open("got.st", "rb").read() == want)

    # A checkpoint that takes longer than --stall-timeout does not end the job.
    slow = ["--steps", 2, "--checkpoint-dir", "slow", "--checkpoint-every", 1, "--stall-timeout", 1]
    train("disk2", *slow)
    if HAS_MPI:
        train("disk2", *slow, "--save", "slow.st", "--export", "slow.onnx", launcher=mpirun(2))

    # Killed at any moment.
    kills, killed = int(os.environ.get("KILLS", 12)), 0
    train("slow2", "--steps", 400, "--save", "want400.st", "--log", "want400.jsonl")
    command = [PROGRAMS / "slow2", *DATA, "--steps", "400", "--checkpoint-dir", "killed", "--checkpoint-every", "3",
               "--keep", "2", "--resume", "--save", "got400.st", "--log", "got400.jsonl"]
    while killed < kills:
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.005, 0.15))
        if job.poll() is None:
            job.kill()
            killed += 1
        elif job.returncode == 0:
            os.system("rm -r killed got400.st got400.jsonl")
        job.wait()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    check(f"after {killed} kills the weights are bit-equal",
          open("got400.st", "rb").read() == open("want400.st", "rb").read())
    check("and so is the log", losses("got400.jsonl") == losses("want400.jsonl"))
    check("nothing unfinished is left", not [n for n in os.listdir("killed") if "tmp" in n], os.listdir("killed"))

    # Any flipped bit is found before the data is used, and the previous checkpoint is loaded.
    os.system("rm -rf ck")
    train("line1", "--steps", 10, *ck)
    good = pathlib.Path("ck/step-000000000010.safetensors")
    whole = good.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [0, 1, 7, 8, 9, 40, header - 1, header, len(whole) - 1] + [random.randrange(len(whole))
              for _ in range(int(os.environ.get("FLIPS", 30)) // 2)] + [random.randrange(header)
              for _ in range(int(os.environ.get("FLIPS", 30)) // 2)]
    for at in places:
        bit = 1 << random.randrange(8)
        good.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1:])
        done = run("line1", *DATA, "--steps", 10, "--resume", "--checkpoint-dir", "ck", "--save", "flip.st")
        check(f"bit {bit} of byte {at} of {len(whole)} is found", done.returncode == 0 and
              "step-000000000010.safetensors' cannot be used" in done.stderr and
              "resuming after step 5" in done.stderr and good.read_bytes() == whole, done.stderr)
        good.write_bytes(whole)
    for n in 0, 7, 8, 100, header, len(whole) - 1:
        good.write_bytes(whole[:n])
        done = run("line1", *DATA, "--steps", 6, "--resume", "--checkpoint-dir", "ck")
        check(f"a file cut to {n} bytes is found", "resuming after step 5" in done.stderr, done.stderr)
        os.system("rm ck/step-000000000006*")
    good.write_bytes(whole + b"\0")
    done = run("line1", *DATA, "--steps", 6, "--resume", "--checkpoint-dir", "ck")
    check("a byte too many is found", "resuming after step 5" in done.stderr, done.stderr)
    os.system("rm ck/step-000000000006*")
    good.write_bytes(b"")
    five = pathlib.Path("ck/step-000000000005.safetensors")
    five.write_bytes(five.read_bytes()[:-1] + b"\x55")
    refused("all are damaged", "cannot resume: every checkpoint in 'ck' is damaged", "line1", *DATA, "--resume",
            "--checkpoint-dir", "ck")

    # A full disk: training continues, the previous checkpoint remains, and the exit status reports it.
    os.system("rm -rf ck")
    train("line1", "--steps", 5, *ck)
    limit = os.path.getsize("ck/step-000000000005.safetensors") - 1000
    done = run("line1", *DATA, "--steps", 20, *ck, "--resume", "--log", "full.jsonl",
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    check("a full disk: status 1 at the end", done.returncode == 1, done.returncode, done.stderr)
    check("a full disk: training goes on", len(log("full.jsonl")) == 20 - 5, done.stderr)
    check("a full disk: says what is left", "no checkpoint of step 10" in done.stderr and
          "that of step 5 is still there" in done.stderr, done.stderr)
    check("a full disk: nothing half-written", names() == ["step-000000000005.safetensors"], names())
    done = run("line1", *DATA, "--steps", 2, "--save", "full.st",
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    check("--save onto a full disk", done.returncode == 1 and not os.path.exists("full.st") and
          not [n for n in os.listdir() if "full.st" in n], done.stderr, os.listdir())

finish()
