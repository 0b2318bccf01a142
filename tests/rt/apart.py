"""Ranks without a shared folder: rank 0 reads and writes all checkpoints, and a newer one elsewhere is an error.

Each rank runs in a folder of its own, with the same data.
"""

import os
import pathlib
import shutil
import socket
import subprocess

from common import DATA, HAS_MPI, PROGRAMS, check, finish, folder_with_data, free_port, run, train

HOST = socket.gethostname()


def by_sockets(program, n, *flags):
    port, jobs = free_port(), []
    for rank in range(n):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port)}
        jobs.append(subprocess.Popen([PROGRAMS / program, *DATA, *map(str, flags)], env=env, cwd=f"at{rank}", text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    errors = [job.communicate(timeout=60)[1] for job in jobs]
    return {job.returncode for job in jobs}, "".join(errors)


def by_mpi(program, n, *flags):
    command = []
    for rank in range(n):
        command += [*([":"] if rank else []), "-n", "1", "-wdir", os.path.abspath(f"at{rank}"), PROGRAMS / program, *DATA, *flags]
    done = run(command[4], *command[5:], launcher=["mpirun", *command[:4]])
    return {done.returncode}, done.stderr


WAYS = [by_sockets] + [by_mpi] * HAS_MPI


def folders(n, *checkpoints):
    """Makes the folders of n ranks with data; those of some with the checkpoints of another folder."""
    for rank in range(n):
        shutil.rmtree(f"at{rank}", ignore_errors=True)
        os.mkdir(f"at{rank}")
        for name in "x.npy", "y.npy":
            shutil.copy(name, f"at{rank}")
    for rank, source in checkpoints:
        shutil.copytree(source, f"at{rank}/ck")


def resumed(what, way, program, n, want, *flags):
    codes, said = way(program, n, "--steps", 8, "--checkpoint-dir", "ck", "--resume", "--save", "got.st", *flags)
    check(f"{way.__name__}: {what}: it resumes", codes == {0} and "rank 0: note: resuming after step 4\n" in said, codes, said)
    check(f"{way.__name__}: {what}: the same bits", pathlib.Path("at0/got.st").read_bytes() == want)
    return said


def checkpoints(ranks):
    """Returns the names in each folder, without a lock: MPI's launcher kills its holder."""
    return [sorted(str(path) for path in pathlib.Path(f"at{rank}/ck").glob("*") if path.name != ".lock") for rank in range(ranks)]


def refused(what, way, ranks, said, *flags):
    before = checkpoints(ranks)
    codes, errors = way(f"line{ranks}", ranks, "--steps", 8, "--checkpoint-dir", "ck", "--resume", *flags)
    check(f"{way.__name__}: {what} is refused", 0 not in codes and f"error: {said}\nhint: start rank 0 with that folder" in errors
          and errors.count("error: 'ck'") == 1 and "starting from step 0" not in errors, codes, errors)
    after = checkpoints(ranks)
    check(f"{way.__name__}: {what}: no checkpoint has changed", after == before, before, after)


with folder_with_data():
    for name, seed, steps in ("four", 1, 4), ("other", 2, 4), ("two", 2, 2), ("six", 2, 6):
        train("line2", "--seed", seed, "--steps", steps, "--checkpoint-dir", name)
    # A tensor of several blocks, and stages on other ranks.
    wants = {}
    for program in "line2", "line4", "blocks4", "apart4", "overlap4", "owes2":
        source = "four" if program.startswith("line") else f"{program}-ck"
        if source != "four":
            train(program, "--steps", 4, "--checkpoint-dir", source)
        shutil.copytree(source, "whole")
        train(program, "--steps", 8, "--checkpoint-dir", "whole", "--resume", "--save", "whole.st")
        wants[program] = source, pathlib.Path("whole.st").read_bytes()
        shutil.rmtree("whole")

    for way in WAYS:
        for program, (source, want) in wants.items():
            n = int(program[-1])
            folders(n, (0, source))
            resumed(program, way, program, n, want)
            check(f"{way.__name__}: {program}: only rank 0 has a folder", not any(os.path.exists(f"at{i}/ck") for i in range(1, n)))
        source, want = wants["line2"]
        # Another run's checkpoint of the same step, or of an earlier one.
        for other in "other", "two":
            folders(2, (0, "four"), (1, other))
            resumed(f"rank 1 has '{other}'", way, "line2", 2, want)

        # A newer one, or any while rank 0 has none: rank 0 has come up on another host.
        newer = f"'ck' of rank 1 on {HOST} has a checkpoint of step 6, and that of rank 0 on {HOST} has that of step 4"
        folders(2, (0, "four"), (1, "six"))
        refused("a newer one", way, 2, newer)
        folders(4, (0, "four"), (2, "six"), (3, "other"))
        refused("a newer one of rank 2", way, 4, newer.replace("rank 1", "rank 2"))
        folders(2, (1, "four"))
        refused("one of rank 1 alone", way, 2, f"'ck' of rank 1 on {HOST} has a checkpoint of step 4, and that of rank 0 on {HOST} "
                "has none")
        # One that rank 1 cannot read now may be sound.
        folders(2, (0, "four"), (1, "four"))
        os.symlink("step-000000000006.safetensors", "at1/ck/step-000000000006.safetensors")
        refused("an unreadable newer one", way, 2, newer)
        # A damaged one cannot be resumed from, and does not count.
        folders(2, (0, "four"), (1, "six"))
        path = pathlib.Path("at1/ck/step-000000000006.safetensors")
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
        said = resumed("a damaged newer one", way, "line2", 2, want)
        check("it is not said", "cannot be used" not in said, said)
        # In one folder the damaged one is said once.
        folders(2, (0, "four"))
        newest = pathlib.Path(shutil.copy("six/step-000000000006.safetensors", "at0/ck"))
        newest.write_bytes(newest.read_bytes()[:-1] + b"\x55")
        os.symlink("../at0/ck", "at1/ck")
        said = resumed("a shared folder", way, "line2", 2, want)
        check("the damaged one is said once", said.count("cannot be used: ") == 1, said)

        # A checkpoint of another program is said by rank 0.
        folders(4, (0, "four"))
        codes, said = way("line4whole", 4, "--steps", 8, "--checkpoint-dir", "ck", "--resume")
        check(f"{way.__name__}: another program", 0 not in codes and said.count("is of another program: ") == 1 and
              "rank 0: error: checkpoint 'ck/step-000000000004.safetensors' is of another program: " in said, codes, said)

        # Checkpoints are written by rank 0; without --resume those of others do not matter.
        folders(2, (1, "six"))
        codes, said = way("line2", 2, "--steps", 4, "--checkpoint-dir", "ck")
        check(f"{way.__name__}: without --resume", codes == {0} and os.listdir("at0/ck") == ["step-000000000004.safetensors"] and
              os.listdir("at1/ck") == ["step-000000000006.safetensors"], codes, said)

finish()
