"""What is missing for a gpu is said before anything else, with what can be done about it."""

from rt_common import DATA, check, finish, folder_with_data, refused, run, train

with folder_with_data():
    refused("no driver", "no NVIDIA driver is found", "gpu_line1", *DATA, env={"EMULATED_DRIVER": "0"})
    refused("an old driver", "the NVIDIA driver is too old: it is for CUDA 12.4", "gpu_line1", *DATA,
            env={"EMULATED_DRIVER": "12040"})
    refused("no gpu", "no gpu is found on this machine", "gpu_line1", *DATA, env={"EMULATED_GPUS": "0"})
    refused("hidden gpus", "CUDA_VISIBLE_DEVICES is '-1'", "gpu_line1", *DATA,
            env={"EMULATED_GPUS": "0", "CUDA_VISIBLE_DEVICES": "-1"})
    refused("another kind of gpu", "is sm_80; this executable was compiled for cuda:sm_90", "gpu_line1", *DATA,
            env={"EMULATED_SM": "80"})
    refused("a small gpu", "training needs 4.0 TiB of memory of gpu 0 for 2 ranks of 2.0 TiB, there are 8.0 GiB", "gpu_huge2", *DATA)
    refused("two gpus are not enough either", "training needs 2.0 TiB of memory of gpu 0, there are 8.0 GiB", "gpu_huge2",
            *DATA, env={"EMULATED_GPUS": "2"})
    done = run("gpu_line1", "--describe", env={"EMULATED_DRIVER": "0"})
    check("--describe needs no gpu", done.returncode == 0, done.stderr)
    done = run("gpu_line1", "--help", env={"EMULATED_DRIVER": "0"})
    check("--help needs no gpu", done.returncode == 0, done.stderr)
    refused("a flag that is wrong needs none to be found", "no such option", "gpu_line1", "--nonsense", status=2,
            env={"EMULATED_DRIVER": "0"})
finish()
