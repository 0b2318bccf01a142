"""Launchers: the own rank is read from their variables, and a wrong number of processes is an error."""

import os
import signal
import socket
import time

from common import DATA, HAS_MPI, check, end, finish, folder_with_data, free_port, mpirun, refused, start, train


with folder_with_data():
    for env, said in [
        ({"WORLD_SIZE": "3", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "for 2 ranks, but WORLD_SIZE is 3"),
        ({"WORLD_SIZE": "3", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "rank 1: error: this executable is for"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, "for 2 ranks, but SLURM_NTASKS is 3"),
        ({"PMI_RANK": "0", "PMI_SIZE": "4"}, "for 2 ranks, but PMI_SIZE is 4"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, "for 2 ranks, but OMPI_COMM_WORLD_SIZE is 1"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "2", "RANK": "x", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "RANK"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "set, but MASTER_ADDR and MASTER_PORT are not"),
    ]:
        refused(str(env), said, "line2", *DATA, env=env)
    # The variables of MPI without its process manager: the library is a job of one.
    if HAS_MPI:
        for rank in 0, 1:
            refused(f"PMI_RANK={rank} alone",
                    f"the launcher says rank {rank} of 2, the MPI library rank 0 of 1: they do not belong together", "line2", *DATA, env={"PMI_RANK": str(rank), "PMI_SIZE": "2"}, timeout=20)
    if HAS_MPI:
        refused("three processes", "for 2 ranks, but PMI_SIZE is 3", "line2", *DATA, launcher=mpirun(3))
    # A batch script of Slurm is not one of several tasks.
    train("line2", "--steps", 2, env={"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "7"})

    for n in 2, 4:
        train(f"line{n}", "--steps", 20, "--save", "threads.st")
        port = free_port()
        done = end([start(f"line{n}", i, n, port, "--steps", 20, "--save", "tcp.st") for i in reversed(range(n))])
        check(f"{n} processes of torchrun", [code for code, _ in done] == [0] * n, done)
        check(f"{n} processes of torchrun give the bits of {n} threads",
              open("tcp.st", "rb").read() == open("threads.st", "rb").read())

    port = free_port()
    done = end([start("fail2", i, 2, port) for i in range(2)])
    check("both end when one fails", all(code == 1 for code, _ in done) and "rank 1, step 4" in done[1][1]
          
          and f"tcp: rank 1 on {socket.gethostname()}: step 4: cross_entropy  line.onnx:/loss" in done[0][1], done)

    # A waiting rank names the rank that is missing, in any order of starts.
    for order in (0, 1), (1, 0):
        port = free_port()
        first = start("line2", order[0], 2, port, "--steps", 2)
        time.sleep(6)
        done = end([first, start("line2", order[1], 2, port, "--steps", 2)])
        check(f"waiting for rank {order[1]}", [code for code, _ in done] == [0, 0] and
              f"waiting for rank {order[1]} at 127.0.0.1:{port}\n" in done[0][1] and "waiting" not in done[1][1], done)

    # An executable for another rank ends all.
    port = free_port()
    done = end([start("split0", i, 2, port) for i in range(2)])
    check("a wrong executable ends all", [code for code, _ in done] == [1, 1] and "can only be rank 0 of 2" in done[1][1], done)
    if HAS_MPI:
        for program in "split0", "split1":
            refused(f"{program} twice", f"can only be rank {program[-1]} of 2", program, *DATA, launcher=mpirun(2))
    refused("one of two without a launcher", "can only be rank 1 of 2", "split1", *DATA)

    # A stranger at the port is not taken for a rank; another program is refused.
    port = free_port()
    first = start("line2", 0, 2, port, "--steps", 2)
    for _ in range(200):
        try:
            stranger = socket.create_connection(("127.0.0.1", port), timeout=1)
            break
        except OSError:
            time.sleep(0.05)
    stranger.sendall(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n" + b" " * 200)
    stranger.close()
    done = end([first, start("line2", 1, 2, port, "--steps", 2)])
    check("a stranger does not matter", [code for code, _ in done] == [0, 0], done)
    port = free_port()
    done = end([start("line2", 0, 2, port), start("fail2", 1, 2, port), ])
    check("ranks of the same shape meet", done[1][0] == 1 and "step 4" in done[1][1], done)

    # A stopped rank is waited for until --stall-timeout.
    port = free_port()
    both = [start("slow2", rank, 2, port, "--steps", 10**8, "--stall-timeout", 2, "--log", f"stall{rank}.jsonl")
            for rank in range(2)]
    while not (os.path.exists("stall0.jsonl") and open("stall0.jsonl").read().count("\n") > 20):
        time.sleep(0.05)
    both[1].send_signal(signal.SIGSTOP)
    done = end(both[:1])
    check("a stopped rank ends the job, and is named", done[0][0] == 1 and
          f"no progress for 2 seconds (--stall-timeout): rank 1 on {socket.gethostname()} (pid {both[1].pid}) is stopped by a "
          "signal; it" in done[0][1], done)
    # It ends by itself once it goes on.
    both[1].send_signal(signal.SIGCONT)
    done = end(both[1:])
    check("the stopped rank ends, too", done[0][0] == 1, done)

finish()
