"""Wrong usage is exit status 2, wrong data 1; both name the error, and leave no files."""

import json
import os
import stat

from common import DATA, PROGRAMS, check, finish, folder_with_data, refused, run, train

with folder_with_data() as folder:
    for flags, said in [
        (["--steps"], "'--steps' needs a value"),
        (["--stesp", "3"], "there is no option '--stesp'\nhint: did you mean --steps?"),
        (["more"], "unexpected 'more'"),
        (["--steps", "0"], "a number from 1 was expected"),
        (["--lr-steps", "0"], "a number from 1 was expected"),
        (["--lr-steps", "half"], "a whole number was expected"),
        (["--steps", "1e3"], "a whole number was expected"),
        (["--steps", "99999999999999999999"], "a whole number was expected"),
        (["--check-replicas", "-1"], "a number from 0 was expected"),
        (["--check-replicas", "often"], "a whole number was expected"),
        (["--lr", "nan"], "a number from 0 was expected"),
        *((["--fpmath", value], f"--fpmath {value}: one of f32|bf16|bf16x3 was expected")
          for value in ("bf17", "bf16x", "bf16x33", "f32|bf16")),
        (["--fpmath", ""], "one of f32|bf16|bf16x3 was expected"),
        (["--lr", "-1"], "a number from 0 was expected"),
        (["--steps", "3", "--steps", "4"], "given twice"),
        (["--steps", "3", "--epochs", "4"], "one of them is enough"),
        (["--resume"], "--resume needs --checkpoint-dir"),
        (["--checkpoint-every", "2"], "needs --checkpoint-dir"),
        (["--keep", "2"], "needs --checkpoint-dir"),
        (["--eval-every", "2"], "needs --eval-input"),
        (["--metric", "accuracy(y)"], "--metric needs --eval-input"),
        (["--metric", "accuracy(y)", "--eval-input", "x=x.npy"], "there is no metric 'accuracy(y)'"),
        (["--input", "x.npy"], "NAME=FILE was expected"),
        *((["--node", node, "--master", "h"],
           f"--node {node}: the number of this host, from 0, and that of all hosts were expected") for node in ("2/2", "x/2", "0", "0/", "/2", "-1/2", "0/0", "1/2/", "0/2x", "0/99999999999")),
        (["--node", "", "--master", "h"], "--node: a name was expected"),
        (["--node", "0/2"], "--node 0/2 needs --master HOST, the host of --node 0/2"),
        (["--master", "h"], "--master needs --node"),
        *((["--node", "0/1", "--master", host], f"--master {host}: a host was expected, such as host1 or host1:29500")
          for host in (":29500", "[]", "[]:29500")),
        *((["--node", "0/1", "--master", host], f"--master {host}: a port from 1 to 65535 was expected")
          for host in ("h:", "h:0", "h:65536", "h:x", "[::1]:", "[::1]:70000")),
        (["--node", "0/2", "--master", "h"], "--node 0/2: this executable is for 1 rank, which 2 hosts cannot share equally"),
    ]:
        refused(" ".join(flags), said, "line1", *DATA, *flags, status=2)
    for schedule in "cosine1", "linear1":
        refused(f"{schedule} without a horizon", "--steps N, --epochs N or --lr-steps N", schedule, *DATA, status=2)

    refused("--lr-steps of a constant rate", "--lr-steps has no effect", "line1", *DATA, "--lr-steps", 3, status=2)

    for flags in ["--lr", "0.0005"], ["--lr", "0"]:
        refused(f"a schedule that would rise, {flags}", "cannot fall from", "cosine1", *DATA, "--steps", 3, *flags, status=2)

    refused("a missing input", "no data for input 'labels' i64[16]", "line1", "--input", "x=x.npy")
    refused("an unknown input", "it has 'x' f32[16,5], 'labels' i64[16]", "line1", *DATA, "--input", "z=x.npy")
    refused("an input twice", "this has 100 rows, an input before it 200", "line1", *DATA, "--input", "x=x.npy")

    for flags in ["--tune", "ways"], ["--tf32"]:
        refused(f"{flags[0]} without a gpu", f"{flags[0]} is for gpus", "line1", *DATA, *flags)

    # Unwritable outputs are found before training.
    for flag in "--save", "--export", "--trace", "--log":
        refused(f"{flag} into no folder", "cannot write 'no/such'", "line1", *DATA, flag, "no/such")
        refused(f"{flag} onto a folder", "cannot write", "line1", *DATA, flag, str(folder))
    refused("--checkpoint-dir that is a file", "'x.npy' is not a folder", "line1", *DATA, "--checkpoint-dir", "x.npy")
    os.mkfifo("pipe")
    for flag in "--save", "--export", "--trace":
        refused(f"{flag} to a pipe", "cannot write 'pipe': it is not a file", "line1", *DATA, flag, "pipe")
    check("the pipe is still one", stat.S_ISFIFO(os.stat("pipe").st_mode))
    os.remove("pipe")
    os.symlink("here", "link")
    for one, other in ("here", "here"), ("here", "./here"), ("link", "here"), (f"{folder}/here", "link"):
        for flags in (["--save", one, "--export", other], ["--log", one, "--save", other], ["--trace", one, "--log", other],
                      ["--tune", one, "--save", other]):
            refused(" ".join(flags), "are the same file", "line1", *DATA, *flags, status=2)
    os.remove("link")
    check("nothing is left behind", sorted(os.listdir()) == ["x.npy", "y.npy"], os.listdir())

    # Epochs: 100 rows in steps of 16 are 7 steps, two epochs 13, and one is the default.
    for flags, steps in (["--epochs", 1], 7), (["--epochs", 2], 13), ([], 7), (["--steps", 3], 3):
        said = train("line1", *flags).stdout
        check(f"{flags} are {steps} steps", f"step {steps}/{steps} " in said, said)

    said = run("line1", "--describe").stdout
    d = json.loads(said)
    check("--describe says what it is", d["model"] == "line.onnx" and d["ranks"] == 1 and d["target"] == "cpu"
          and d["inputs"][0] == {"name": "x", "dtype": "f32", "shape": [16, 5]}
          and d["optimizer"] == "sgd:momentum=0.9", said)
    for flags, value in ([], "f32"), (["--fpmath", "bf16x3"], "bf16x3"):
        cpu = json.loads(run("line1", *flags, "--describe").stdout)
        check(f"--describe has the instructions and the products of {flags}", cpu["fpmath"] == value and
              cpu["instruction_set"] and cpu["bf16_products"] in ("none", "vectors", "tiles"), cpu)
    check("--describe names the libraries it found", any(l.startswith("/") and "/libgomp.so" in l for l in d["libraries"]), said)
    said = run("line1", "--help")
    check("--help groups the options", said.returncode == 0 and "\nCheckpoints:\n" in said.stdout, said.stdout)
    check("--version", run("line1", "--version").stdout == "nnaot test: line.onnx for cpu\n")

    # A program without its payload reports that instead of training with other weights.
    cut = folder / "cut" / "line1"
    cut.parent.mkdir()
    whole = (PROGRAMS / "line1").read_bytes()
    cut.write_bytes(whole[:whole.rindex(b"nnrtpay2") - 128])
    cut.chmod(0o755)
    refused("a stripped executable", "the weights at the end of this executable are missing", cut, *DATA)

    os.symlink(PROGRAMS / "line1", "line0")
    refused("a name that is in no table", "no program of this table has the name 'line0'", folder / "line0", status=2)

finish()
