"""Processes of one job that were started differently: all end before the first step, and rank 0 names the difference."""

import os
import re
import socket

from common import DATA, HAS_MPI, PROGRAMS, check, end, finish, folder_with_data, free_port, npy, run, start


def by_sockets(ranks):
    port = free_port()
    done = end([start(program, rank, len(ranks), port, *flags, data=data) for rank, (program, data, flags) in enumerate(ranks)])
    return [code for code, _ in done], "".join(err for _, err in done)


def by_mpi(ranks):
    rest = []
    for program, data, flags in ranks[1:]:
        rest += [":", "-n", "1", PROGRAMS / program, *data, *flags]
    program, data, flags = ranks[0]
    done = run(program, *data, *flags, *rest, launcher=["mpirun", "-n", "1"], timeout=30)
    return [done.returncode], done.stderr


WAYS = [by_sockets] + [by_mpi] * HAS_MPI


def refused(said, *ranks, status=2, ways=WAYS):
    for way in ways:
        codes, err = way(ranks)
        what = f"{way.__name__}: {said}"
        check(f"{what}: all end with {status}", set(codes) == {status}, codes, err)
        check(f"{what}: said once, by rank 0", f"rank 0: error: {said}\n" in err and err.count("error: ") == 1, err)


def another_program(said, *ranks):
    """The last rank has another program.  Sockets refuse it: it may be of another job.  It ends with the difference, and
    the others when their time is over."""
    last = len(ranks) - 1
    codes, err = by_sockets([(program, data, [*flags, "--connect-timeout", 2]) for program, data, flags in ranks])
    what = f"sockets: {said}"
    check(f"{what}: all end", set(codes) == {1}, codes, err)
    check(f"{what}: said by rank {last}", f"rank {last}: error: {said}" in err, err)
    note = re.search(rf"rank 0: note: dropped: a process at [0-9.:]+ \({re.escape(socket.gethostname())}\) says it is rank {last} of"
                     rf" {len(ranks)}, but it runs another program: {re.escape(said)}", err)
    check(f"{what}: noted by rank 0 before its time is over", note and note.start() < err.index("did not come to"), err)
    check(f"{what}: rank {last} is missing", f"rank {last} did not come to " in err and err.count(" within 2 s (--connect-timeout)") == last, err)
    if HAS_MPI:
        codes, err = by_mpi(ranks)
        what = f"MPI: {said}"
        check(f"{what}: status 2", codes == [2], codes, err)
        check(f"{what}: said once, by rank 0", f"rank 0: error: {said}" in err and err.count("error: ") == 1, err)


def trains(*ranks):
    for way in WAYS:
        codes, err = way(ranks)
        check(f"{way.__name__}: {ranks} train", set(codes) == {0}, codes, err)


with folder_with_data():
    eval_data = [flag.replace("--", "--eval-") if flag == "--input" else flag for flag in DATA]

    # Files that only one rank writes or reads, which is collective; and settings of each process.
    for flag, given, both in [
        ("--save", ["s.st"], []), ("--export", ["m.onnx"], []), ("--trace", ["t.json"], []), ("--traffic", ["t.json"], []), ("--memory", ["u.json"], []),
        ("--checkpoint-dir", ["ck"], []), ("--resume", [], ["--checkpoint-dir", "ck"]), ("--tf32", [], []), ("--tune", ["t.tune"], []),
    ]:
        with_it, without = ("line2", DATA, [*both, flag, *given]), ("line2", DATA, both)
        refused(f"{flag} is given at rank 0, but not given at rank 1", with_it, without)
        refused(f"{flag} is not given at rank 0, but given at rank 1", without, with_it)
    for flag, given, other, both in [
        ("--steps", "3", "4", []), ("--epochs", "2", "3", []), ("--lr", "0.1", "0.001", []), ("--seed", "5", "-5", []),
        ("--shuffle", "1", "2", []), ("--fpmath", "bf16", "bf16x3", []), ("--eval-every", "2", "3", eval_data),
        ("--checkpoint-every", "2", "3", ["--checkpoint-dir", "ck"]),
    ]:
        one, another, none = (("line2", DATA, [*both, *more]) for more in ([flag, given], [flag, other], []))
        refused(f"{flag} is {given} at rank 0, but not given at rank 1", one, none)
        refused(f"{flag} is {given} at rank 0, but {other} at rank 1", one, another)
    refused("--eval-input is given 2 times at rank 0, but not given at rank 1", ("line2", DATA, eval_data), ("line2", DATA, []))
    refused("--tokens is not given at rank 0, but given at rank 1", ("line2", DATA, []),
            ("line2", DATA, ["--tokens", "x=x.npy"]))
    # The first difference from rank 0, and executables of --split-ranks.
    same = ("line4", DATA, ["--steps", "2"])
    refused("--lr is not given at rank 0, but 0.5 at rank 2", same, same, ("line4", DATA, ["--steps", "2", "--lr", "0.5"]), same)
    refused("--save is given at rank 0, but not given at rank 1", ("split0", DATA, ["--save", "s.st"]), ("split1", DATA, []))
    trains(("split0", DATA, ["--steps", "2", "--save", "s.st"]), ("split1", DATA, ["--steps", "2", "--save", "s.st"]))
    check("nothing else is written", sorted(os.listdir()) == ["s.st", "x.npy", "y.npy"], os.listdir())

    # Numbers compare by value; names of files may differ; outputs of rank 0 are its own.
    trains(("line2", DATA, ["--steps", "2", "--lr", "0.1", "--save", "a.st", "--log", "a.jsonl"]),
           ("line2", DATA, ["--steps", "2", "--lr", "1e-1", "--save", "b.st"]))

    # Other programs.
    another_program("the plan is 'dp' at rank 0, but 'other' at rank 1", ("line2", DATA, []), ("plan2", DATA, []))
    another_program("the compiled --optimizer is sgd:momentum=0.9 at rank 0, but sgd at rank 1", ("line2", DATA, []),
                    ("other2", DATA, []))
    another_program("the compiled --optimizer is sgd at rank 0, but sgd:momentum=0.9 at rank 1", ("other2", DATA, []),
                    ("line2", DATA, []))
    another_program("the checksum of the compiled weights is 5ee1 at rank 0, but 7a90 at rank 1", ("line2", DATA, []),
                    ("weights2", DATA, []))
    another_program("the program is ", ("line2", DATA, []), ("small2", DATA, []))
    # A long value is cut, and all of it counts.
    begin = "adamw:" + "betas=0.9/0.95," * 40
    another_program(f"the compiled --optimizer is {begin[:80]}… (checksum ", ("long2", DATA, []), ("longer2", DATA, []))
    four = [("line4", DATA, [])] * 3
    another_program("the model is 'line.onnx' at rank 0, but 'stages.onnx' at rank 3", *four, ("apart4", DATA, []))

    # Data is opened after the ranks have connected: the numbers of rows must be equal, or epochs would end at different
    # steps.
    npy("fewer_x.npy", [0] * 5 * 90, (90, 5))
    npy("fewer_y.npy", [0] * 90, (90,), "<i8")
    fewer = ["--input", "x=fewer_x.npy", "--input", "labels=fewer_y.npy"]
    refused("the number of rows is 100 at rank 0, but 90 at rank 1", ("line2", DATA, []), ("line2", fewer, []), status=1)
    fewer_eval = [flag.replace("--", "--eval-") if flag == "--input" else flag for flag in fewer]
    refused("the number of rows for evaluation is 100 at rank 0, but 90 at rank 1", ("line2", DATA, eval_data),
            ("line2", DATA, fewer_eval), status=1)

    # Data of the same shape with other contents; other names of files are not.
    rows = open("x.npy", "rb").read()
    open("other_x.npy", "wb").write(rows[:-1] + bytes([rows[-1] ^ 1]))
    open("same_x.npy", "wb").write(rows)
    other, again = (["--input", f"x={name}.npy", "--input", "labels=y.npy"] for name in ("other_x", "same_x"))
    evaluated = lambda flags: [flag.replace("--input", "--eval-input") for flag in flags]
    for flag, one, another in ("--input x", (DATA, eval_data), (other, eval_data)), (
            "--eval-input x", (DATA, eval_data), (DATA, evaluated(other))):
        for way in WAYS:
            codes, err = way([("line2", *one), ("line2", *another)])
            is_ = f"rank 0: error: the data of {flag} is 100 rows, 2128 bytes, checksum "
            check(f"{way.__name__}: other contents of {flag}", set(codes) == {1} and is_ in err and err.count("error: ") == 1 and
                  " in 'x.npy' at rank 0, but 100 rows, 2128 bytes, checksum " in err and
                  " in 'other_x.npy' at rank 1\nhint: all ranks need the same data\n" in err, codes, err)
    trains(("line2", DATA, ["--steps", "2", *eval_data]), ("line2", again, ["--steps", "2", *evaluated(again)]))
    npy("x1.npy", [0] * 250, (50, 5))
    halves = ["--input", "x=x1.npy", "--input", "x=x1.npy", "--input", "labels=y.npy"]
    pattern = ["--input", "x=x[1].npy", "--input", "x=x1.npy", "--input", "labels=y.npy"]
    npy("x1a.npy", [0] * 125, (25, 5))
    npy("x1b.npy", [0] * 125, (25, 5))
    pieces = ["--input", "x=x1[ab].npy", "--input", "x=x1.npy", "--input", "labels=y.npy"]
    refused("the number of files of --input x is 2 at rank 0, but 3 at rank 1", ("line2", halves, []), ("line2", pieces, []),
            status=1)
    trains(("line2", halves, ["--steps", "2"]), ("line2", pattern, ["--steps", "2"]))

    # An error of all ranks is reported once; an error of one rank, by that rank.
    missing = ("line2", ["--input", "x=no.npy", "--input", "labels=y.npy"], [])
    refused("--input x=no.npy: cannot read 'no.npy': No such file or directory", missing, missing, status=1)
    for way in WAYS:
        codes, err = way([("line2", DATA, []), missing])
        check(f"{way.__name__}: a file that rank 1 misses", set(codes) == {1} and err.count("error: ") == 1 and
              "rank 1: error: --input x=no.npy" in err, codes, err)

    # Hydra does not notice the end of a process that has not connected: so a process with a wrong command line
    # connects, and so does one with a program for another number of ranks.
    if HAS_MPI:
        refused("the number of ranks is 2 at rank 0, but 4 at rank 1", ("line2", DATA, []), ("line4", DATA, []), ways=[by_mpi])
        refused("the number of ranks is 1 at rank 0, but 2 at rank 1", ("line1", DATA, []), ("line2", DATA, []), ways=[by_mpi])
        for flags, said in (["--stesp", "3"], "there is no option '--stesp'"), (["--resume"], "--resume needs --checkpoint-dir"):
            same = ("line2", DATA, flags)
            codes, err = by_mpi([same, same])
            check(f"{flags} is said once", codes[0] != 0 and err.count("error: ") == 1 and f"error: {said}\nhint: " in err, codes, err)
            codes, err = by_mpi([same, ("line2", DATA, [])])
            check(f"{flags} of rank 0 is said once", codes[0] != 0 and err.count("error: ") == 1 and f"error: {said}\nhint: " in err,
                  codes, err)
            refused(f"the command line is understood at rank 0, but not understood: {said} at rank 1", ("line2", DATA, []), same,
                    ways=[by_mpi])

finish()
