"""SIGTERM and SIGINT finish the step, save, and end with 0; a second one ends at once."""

import os
import signal
import subprocess
import time

from common import DATA, HAS_MPI, PROGRAMS, check, finish, folder_with_data, losses, mpirun, safetensors, train

with folder_with_data():
    def stopped(which, program="slow2", launcher=(), second=None):
        os.system("rm -rf ck log.jsonl stop.st")
        job = subprocess.Popen([*launcher, PROGRAMS / program, *DATA, "--steps", "100000", "--checkpoint-dir", "ck",
                                "--save", "stop.st", "--log", "log.jsonl"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
        while not (os.path.exists("log.jsonl") and os.path.getsize("log.jsonl")):
            time.sleep(0.01)
        job.send_signal(which)
        if second: job.send_signal(second)
        try:
            err = job.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            err = "does not end: " + job.communicate()[1]
        return job.returncode, err

    for which in signal.SIGTERM, signal.SIGINT:
        for program in "slow1", "slow2":
            code, err = stopped(which, program)
            check(f"{program}: {which.name} is no failure", code == 0 and f"stopped by {which.name} after" in err, code, err)
            done = len(losses("log.jsonl"))
            check("the checkpoint is of the last step", os.listdir("ck") == [f"step-{done:012}.safetensors"], os.listdir("ck"))
            state, _ = safetensors(f"ck/step-{done:012}.safetensors")
            saved, _ = safetensors("stop.st")
            check("--save is of the last step", saved["w"] == state["weight/w"])
            train(program, "--steps", done + 3, "--resume", "--checkpoint-dir", "ck", "--log", "log.jsonl")
            check("and it goes on from there", [s for s, _, _ in losses("log.jsonl")] == list(range(done + 3)))
    code, err = stopped(signal.SIGTERM, second=signal.SIGINT)
    check("the second signal ends at once", code in (128 + signal.SIGTERM, 128 + signal.SIGINT) or code == 0, code, err)
    if HAS_MPI:
        code, err = stopped(signal.SIGTERM, launcher=mpirun(2))
        check("SIGTERM to mpirun stops all ranks, and saves", err.count("stopped by SIGTERM") == 1 and
              len(os.listdir("ck")) == 1 and os.path.exists("stop.st"), code, err)

    # A crash is said, and the signal has its usual effect.
    for number, said in (signal.SIGSEGV, "SIGSEGV, an access to memory"), (signal.SIGABRT, "SIGABRT, the program or a library"):
        job = subprocess.Popen([PROGRAMS / "slow1", *DATA, "--steps", "100000", "--log", "crash.jsonl"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        while not (os.path.exists("crash.jsonl") and os.path.getsize("crash.jsonl")):
            time.sleep(0.01)
        job.send_signal(number)
        err = job.communicate(timeout=30)[1]
        # A sanitizer reports SIGSEGV itself.
        check(f"{number.name} is said", f"slow1: error: this process has crashed: {said}" in err and job.returncode == -number
              or number == signal.SIGSEGV and "Sanitizer" in err, job.returncode, err)
        os.remove("crash.jsonl")

finish()
