"""Missing requirements of a GPU are reported first, with a remedy."""

import json

from rt_common import DATA, HAS_MPI, check, finish, folder_with_data, mpirun, refused, run, train

with folder_with_data():
    refused("no driver", "no NVIDIA driver is found", "gpu_line1", *DATA, env={"EMULATED_DRIVER": "0"})
    refused("an old driver", "the NVIDIA driver is too old: it is for CUDA 12.4", "gpu_line1", *DATA,
            env={"EMULATED_DRIVER": "12040"})
    refused("no gpu", "no gpu is found on this machine", "gpu_line1", *DATA, env={"EMULATED_GPUS": "0"})
    refused("hidden gpus", "CUDA_VISIBLE_DEVICES is '-1'", "gpu_line1", *DATA,
            env={"EMULATED_GPUS": "0", "CUDA_VISIBLE_DEVICES": "-1"})
    for flag, value in ("--memory", "m.json"), ("--fpmath", "bf16"):
        refused(f"{flag} of a program for gpus", f"{flag} is for processors, and this executable is for gpus", "gpu_line1",
                *DATA, flag, value)
    # Architectures of a program: tests/tools/emit_cuda.test.
    refused("an old gpu", "gpu 0, emulated gpu, is sm_75; sm_80 is the oldest that can be used", "gpu_line1", *DATA,
            env={"EMULATED_SM": "75"})
    refused("too many threads", "axis dp has 33 ranks, and one process can have 32 of one axis\n"
            "hint: start one process for each rank, as in: mpirun -n 33", "gpu_line33", *DATA)
    refused("a small gpu", "training needs 4.0 TiB of memory of gpu 0 for 2 ranks of 2.0 TiB, there are 8.0 GiB", "gpu_huge2", *DATA)
    refused("two gpus are not enough either", "training needs 2.0 TiB of memory of gpu 0, there are 8.0 GiB", "gpu_huge2",
            *DATA, env={"EMULATED_GPUS": "2"})
    # Memory beyond the slabs is checked when it is requested.
    refused("no scratch", "out of memory: scratch of 156.2 KiB\nhint: more ranks on more machines, more --micro-batches",
            "gpu_line2", *DATA, "--eval-input", "x=x.npy", "--eval-input", "labels=y.npy", "--eval-every", 1,
            env={"EMULATED_MEMORY": "710k"})
    refused("an old cuBLASLt", "cuBLASLt is too old: it is 12.9.1, this executable was made for", "gpu_line1", *DATA,
            env={"EMULATED_CUBLASLT": "120901"})
    refused("an old cuDNN", "cuDNN is too old: it is 9.1.0, this executable was made for", "gpu_line1", *DATA,
            env={"EMULATED_CUDNN": "90100"})
    refused("the next cuDNN", "cuDNN is too new", "gpu_line1", *DATA, env={"EMULATED_CUDNN": "100000"})
    train("gpu_line1", "--steps", 2, env={"EMULATED_CUDNN": "99900"})
    if HAS_MPI:
        two = {"EMULATED_GPUS": "2"}
        for what, said, more in (
                ("no NCCL", "NCCL is not found: /no/such: cannot open", {"NNRT_NCCL_LIBRARY": "/no/such"}),
                ("no NCCL at all", "NCCL is too old: it has no 'ncclGetVersion'", {"NNRT_NCCL_LIBRARY": "libm.so.6"})):
            refused(what, said, "gpu_no_nccl2", *DATA, launcher=mpirun(2), env={**two, **more})
        refused("an old NCCL", "NCCL is too old: it is 2.18.5", "gpu_line2", *DATA, launcher=mpirun(2),
                env={**two, "EMULATED_NCCL": "21805"})
    train("gpu_no_nccl2", "--steps", 2, env={"NNRT_NCCL_LIBRARY": "/no/such"})  # threads do not need it
    done = run("gpu_line1", "--describe", env={"EMULATED_DRIVER": "0"})
    check("--describe needs no gpu", done.returncode == 0, done.stderr)
    cuda = {p: json.loads(run(p, "--describe").stdout)["cuda"] for p in ("gpu_line1", "gpu_line2")}
    check("--describe says NCCL's version", "nccl" not in cuda["gpu_line1"] and cuda["gpu_line2"]["nccl"].startswith("2."),
          cuda)
    done = run("gpu_no_nccl2", "--describe", env={"NNRT_NCCL_LIBRARY": "/no/such"})
    check("--describe needs no NCCL", done.returncode == 0 and "nccl" not in json.loads(done.stdout)["cuda"], done.stderr)
    done = run("gpu_no_nccl2", "--describe")  # of this machine
    files = [f for f in json.loads(done.stdout)["libraries"] if "libnccl" in f]
    check("--describe says its file", len(files) == ("nccl" in json.loads(done.stdout)["cuda"]), done.stdout)
    done = run("gpu_line1", "--help", env={"EMULATED_DRIVER": "0"})
    check("--help needs no gpu", done.returncode == 0, done.stderr)
    refused("a flag that is wrong needs none to be found", "there is no option", "gpu_line1", "--nonsense", status=2,
            env={"EMULATED_DRIVER": "0"})
finish()
