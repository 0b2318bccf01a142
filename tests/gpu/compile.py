"""Every sample compiles and links for a GPU; no GPU and no driver is needed.

    compile.py SAMPLE [--all]   for sm_90, on 1 rank and on 4 under some plans, in f32 and bf16: each plan in one of
                                them, or in both.  cuDNN plans, which take seconds, are built for one, or for all

Prints for each the size, the seconds, the number of ahead-of-time cuDNN plans, and at the end the libraries that one of
them needs.
"""

import json
import pathlib
import re
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import BUILD, compile_sample, run, scratch  # noqa: E402

ALL = [(plan, ranks, dtype) for plan, ranks in (("dp", 1), ("dp", 4), ("tp", 4), ("zero3", 4)) for dtype in ("f32", "bf16")]
SOME = [("dp", 1, "f32"), ("dp", 4, "bf16"), ("tp", 4, "f32"), ("zero3", 4, "bf16")]
WITH_PLANS = ("dp", 4, "bf16")


def planned(exe):
    """Plans after the payload: the trailer has their size in bytes."""
    data = exe.read_bytes()
    magic, offset, payload, plans, _ = struct.unpack("<8s3qQ", data[-40:])
    assert magic == b"nnrtpay2"
    text = data[offset + payload:offset + payload + plans]
    return sum(int(n) for n in re.findall(rb"^nnrt plans .* count (\d+)$", text, re.M))


def libraries(exe):
    """Names of NVIDIA's libraries that the dynamic linker looks for."""
    lines = run("ldd", exe).splitlines()
    missing = [line for line in lines if "not found" in line]
    if missing or any("libdnnl" in line for line in lines):
        sys.exit("\n".join(lines))
    return [line.split()[0] for line in lines if re.search("cu(da|blas|dnn)|nccl", line)]


def main(name, every):
    print(f"{'sample':8} {'plan':8} {'dtype':5} {'ranks':5} {'MB':>6} {'s':>5} {'planned':>7}")
    with scratch() as folder:
        exe = pathlib.Path(folder, "train")
        for plan, ranks, dtype in ALL if every else SOME:
            start = time.monotonic()
            with_plans = every or (plan, ranks, dtype) == WITH_PLANS
            compile_sample(name, exe, ranks=ranks, extra=["--target", "cuda:sm_90", "--dtype", dtype, "--plan", plan,
                                                          *([] if with_plans else ["--aot-plans=no"])])
            seconds = time.monotonic() - start
            says = json.loads(run(exe, "--describe"))
            assert says["target"] == "cuda:sm_90" and says["architectures"] == ["sm_90"]
            # Attention in 16 bits uses cuDNN; without a driver its plans need the stub.
            if name == "gpt2" and dtype == "bf16" and with_plans:
                assert planned(exe) > 0
            print(f"{name:8} {plan:8} {dtype:5} {ranks:5} {exe.stat().st_size / 1e6:6.1f} {seconds:5.1f} "
                  f"{planned(exe):7}", flush=True)
        print("needs", *libraries(exe))


main(sys.argv[1], "--all" in sys.argv[2:])
