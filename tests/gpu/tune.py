"""--tune and --tf32 of an executable for GPUs, as users see them: the mlp sample on the emulator, on two ranks."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import BUILD, check, compile_sample, data_flags, finish, run, scratch, train, worst_difference  # noqa: E402


def losses(exe, *flags):
    log = pathlib.Path(exe).with_name("log.jsonl")
    log.unlink(missing_ok=True)
    return [line["loss"] for line in train(exe, "mlp", 5, log, flags)]


os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
with scratch() as folder:
    exe, ways = pathlib.Path(folder, "train"), pathlib.Path(folder, "ways")
    compile_sample("mlp", exe, ranks=2, extra=["--target", "cuda:sm_90"])
    plain = losses(exe)

    # The first run measures, the second uses its results: the same file, and the same bits.
    first = losses(exe, "--tune", ways)
    text = ways.read_text()
    check("a tune file says what it is", text.startswith("nnaot tune 1\ncublaslt "), text[:200])
    problems = [line.split(" ", 3)[3] for line in text.splitlines()[3:-1]]
    check("each product is in it once", problems and len(set(problems)) == len(problems), text)
    when = ways.stat().st_mtime_ns
    check("a tuned run repeats", losses(exe, "--tune", ways) == first)
    check("what is known is not measured again", ways.stat().st_mtime_ns == when)
    check("a tuned run computes the same", worst_difference(first, plain) < 1e-5, first, plain)

    thesis = pathlib.Path(folder, "thesis")
    thesis.write_text("years of work")
    said = run(exe, *data_flags("mlp"), "--steps", 1, "--tune", thesis, ok=1)
    check("a file of another kind is refused", "no file of measured choices" in said, said)
    check("and left alone", thesis.read_text() == "years of work")
    said = run(exe, *data_flags("mlp"), "--steps", 1, "--tune", "no/such", ok=1)
    check("a file that cannot be written is found before training", "cannot write 'no/such'" in said, said)

    rough = losses(exe, "--tf32")
    check("TF32 rounds, a little", 0 < worst_difference(rough, plain) < 1e-2, rough, plain)
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    check("NVIDIA_TF32_OVERRIDE=0 forbids it", losses(exe, "--tf32") == plain)

finish()
