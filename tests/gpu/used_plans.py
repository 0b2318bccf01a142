"""Ahead-of-time plans, from building to using them: the gpt2 sample on the emulator, with a GPU of 4 multiprocessors.

Without plans for it the executable reports that it built them at start; with plans after its payload it reports
nothing, and the losses are the same bits.  Damaged plans are a warning, and are rebuilt.
"""

import os
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import BUILD, check, compile_sample, data_flags, finish, read_log, run, scratch  # noqa: E402

NOTE = "plans of cudnn were built at start"
DRIVER = ["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"]


def with_plans(exe, plans):
    """`exe` with these plans in place of its own."""
    whole = exe.read_bytes()
    magic, offset, size, _, _ = struct.unpack("<8s3qQ", whole[-40:])
    check("the executable ends in a trailer", magic == b"nnrtpay2", magic)
    out, payload_bin, plans_file = (exe.with_name(name) for name in ("other", "payload.bin", "plans_of_other"))
    payload_bin.write_bytes(whole[offset:offset + size])
    plans_file.write_bytes(plans)
    out.unlink(missing_ok=True)
    out.write_bytes(whole)
    out.chmod(0o755)
    run(out, "--append", payload_bin, "--append", plans_file)
    return out


def losses(exe):
    log = exe.with_name("log.jsonl")
    log.unlink(missing_ok=True)
    said = run(exe, *data_flags("gpt2"), "--steps", 2, "--log", log)
    return [line["loss"] for line in read_log(log)], said


def plan(exe, processors, out):
    device = exe.with_name("device.json")
    device.write_text(f'{{"deviceVer":900,"multiProcessorCount":{processors}}}')
    environment = {**os.environ, "NNRT_PLAN_DEVICE": str(device), "NNRT_PLAN_OUT": str(out)}
    run(exe, env={**environment, "LD_LIBRARY_PATH": str(BUILD / "rt" / "standin")})
    plans = out.read_bytes()
    if not any(pathlib.Path(f).exists() for f in DRIVER):
        said = run(exe, ok=1, env=environment)
        check("without a driver or what stands in for it there is no plan", "libcuda.so.1" in said, said)
    return plans


os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
with scratch() as folder:
    exe = pathlib.Path(folder, "train")
    compile_sample("gpt2", exe, extra=["--target", "cuda:sm_90", "--dtype", "bf16", "--aot-plans", "no"])
    plain, said = losses(exe)
    check("without plans it says so", NOTE in said and "this executable has none" in said, said)

    out = pathlib.Path(folder, "plans")
    plans = plan(exe, 4, out)
    check("plans say what they are for", plans.startswith(b"nnrt plans 1 cudnn 91900 sm 90 multiprocessors 4 "), plans[:80])

    got, said = losses(with_plans(exe, plans))
    check("plans are used without a word", "cudnn" not in said, said)
    check("and give the same bits", got == plain, got, plain)

    got, said = losses(with_plans(exe, plans[:-9] + b"x" + plans[-8:]))
    check("damaged ones are a warning", "warning" in said and "checksum" in said and NOTE in said, said)
    check("and give the same bits", got == plain, got, plain)

    got, said = losses(with_plans(exe, plan(exe, 8, out)))
    check("those for another gpu are not used", "sm_90 with 8 multiprocessors; this is cudnn" in said, said)
    check("and give the same bits", got == plain, got, plain)

finish()
