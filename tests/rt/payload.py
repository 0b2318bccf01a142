"""The parts of an executable's file: --verify, --append, and damage, which every rank that reads it reports before training."""

import pathlib
import shutil
import struct
import subprocess

from common import DATA, HAS_MPI, PROGRAMS, check, finish, folder_with_data, refused, run, train

DAMAGED = "this executable is damaged: its "


def copy(folder, program, data):
    """A copy of a program under its own name, in another folder, with these bytes."""
    path = folder / "copies" / str(len(list((folder / "copies").iterdir()))) / program
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def flipped(data, at, bit=0):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]


with folder_with_data() as folder:
    (folder / "copies").mkdir()
    whole = (PROGRAMS / "line2").read_bytes()
    text = whole.index(b"print a description of this executable")  # the dynamic linker reads no text of --help
    block = text // 16384 * 16384
    magic, offset, size, plans, _ = struct.unpack("<8s3qQ", whole[-40:])
    check("the trailer", magic == b"nnrtpay2" and offset % 4096 == 0 and size == 64 + 46 and plans == 0, magic, offset, size)

    # --verify has a line for each part.
    done = run("line2", "--verify")
    lines = [line.split() for line in done.stdout.splitlines()]
    check("--verify", done.returncode == 0 and [(w[0], int(w[1]), w[3]) for w in lines] == [
        ("program", offset, "ok"), ("weights", 64, "ok"), ("model", size - 64, "ok"),
        ("checksums", len(whole) - offset - size, "ok")], done.stdout, done.stderr)

    # A damaged weight is named, whoever reads it, and nothing is written.
    bad = copy(folder, "line2", flipped(whole, offset + 5))
    for launcher in [(), ("mpirun", "-n", "2")][:1 + HAS_MPI]:
        refused(f"a damaged weight {launcher}", f"{DAMAGED}weights, bytes {offset} to {offset + size - 1}, of 'w', the model", bad,
                *DATA, "--steps", 2, "--save", "w.st", "--log", "w.jsonl", launcher=launcher)
        check("nothing is written", not pathlib.Path("w.st").exists() and not pathlib.Path("w.jsonl").read_text())
    done = run(bad, "--verify")
    check("--verify names it", done.returncode == 1 and done.stdout.count("ok") == 2 and
          f"damaged: bytes {offset} to {offset + size - 1}, of 'w'" in done.stdout, done.stdout)
    if HAS_MPI:  # one of two ranks has a damaged file
        for at in offset + 5, text:
            other = copy(folder, "line2", flipped(whole, at))
            steps = [*DATA, "--steps", "2"]
            refused(f"byte {at} of rank 1's file is damaged", DAMAGED, PROGRAMS / "line2", *steps, ":", "-n", "1", other, *steps,
                    launcher=("mpirun", "-n", "1"))

    # A resumed run reads no weight of the executable, and --export its model.
    train("line2", "--steps", 2, "--checkpoint-dir", "ck")
    train(bad, "--steps", 3, "--checkpoint-dir", "ck", "--resume", "--save", "resumed.st")
    refused("a damaged model", DAMAGED, bad, *DATA, "--steps", 4, "--checkpoint-dir", "ck", "--resume", "--export", "model")

    # The program, and each byte of the trailer.
    bad = copy(folder, "line2", flipped(whole, text))
    refused("a damaged program", DAMAGED + f"program, bytes {block} to {min(block + 16384, offset) - 1}", bad, "--version")
    refused("--verify with a damaged program", DAMAGED + "program", bad, "--verify")
    for at in range(len(whole) - 48, len(whole)):
        said = "are missing" if len(whole) - 40 <= at < len(whole) - 32 else DAMAGED + "end"
        refused(f"byte {at - len(whole)} is damaged", said, copy(folder, "line2", flipped(whole, at, at % 8)), *DATA, "--steps", 1)
    for n in 1, 40, 41, len(whole) - offset:
        refused(f"the last {n} bytes are missing", "are missing", copy(folder, "line2", whole[:-n]), *DATA, "--steps", 1)
    refused("bytes are missing before the trailer", DAMAGED + "end", copy(folder, "line2", whole[:-56] + whole[-40:]), "--version")

    # --append: what the head of program.c has, of a program that was stripped before.
    stripped = copy(folder, "line2", whole)
    if shutil.which("strip"):
        subprocess.run(["strip", stripped], check=True)
    else:
        stripped.write_bytes(whole[:offset])
    refused("a stripped program", "weights at the end of this executable are missing\nhint: strip and objcopy", stripped, *DATA)
    refused("--verify of it", "has no checksums at its end", stripped, "--verify")
    pathlib.Path("payload.bin").write_bytes(whole[offset:offset + size])
    refused("the payload of another program", "'x.npy' is of another program: it has", stripped, "--append", "x.npy")
    refused("no payload", "--append: cannot read 'none': No such file", stripped, "--append", "none")
    refused("no file", "--append: '.' is not a file", stripped, "--append", ".")
    refused("no plans", "cannot read 'none'", stripped, "--append", "payload.bin", "--append", "none")
    refused("three files", "once more for plans", stripped, *["--append", "payload.bin"] * 3)
    before = sorted(p.name for p in stripped.parent.iterdir())
    for files, part in (["--append", "payload.bin"], b""), (["--append", "payload.bin", "--append", "x.npy"], b"plans"):
        done = run(stripped, *files)
        check("--append", done.returncode == 0 and not done.stderr and not done.stdout, done.stdout, done.stderr)
        done = run(stripped, "--verify")
        check("is verified", done.returncode == 0 and (b"plans" in done.stdout.encode()) == bool(part), done.stdout, done.stderr)
        train(stripped, "--steps", 2)
    check("it leaves no other file", before == sorted(p.name for p in stripped.parent.iterdir()))

    # Checkpoints.
    train("line2", "--steps", 4, "--checkpoint-dir", "two", "--checkpoint-every", 2)
    done = run("line2", "--verify", "--checkpoint-dir", "two")
    check("--verify of checkpoints", done.returncode == 0 and done.stdout.count("ok") == 6
          and "--resume continues after step 4" in done.stdout, done.stdout, done.stderr)
    newest = pathlib.Path("two/step-000000000004.safetensors")
    newest.write_bytes(flipped(newest.read_bytes(), newest.stat().st_size - 1))
    done = run("line2", "--verify", "--checkpoint-dir", "two")
    check("--verify of a damaged one", done.returncode == 1 and "000004.safetensors  damaged: '" in done.stdout
          and "--resume continues after step 2" in done.stdout, done.stdout, done.stderr)
    done = run("line2", "--verify", "--checkpoint-dir", "none")
    check("--verify of no checkpoint", done.returncode == 1 and "no checkpoint in 'none' can be resumed from" in done.stdout
          and not pathlib.Path("none").exists(), done.stdout, done.stderr)

finish()
