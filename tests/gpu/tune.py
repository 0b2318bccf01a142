"""--tune and --tf32 of an executable for GPUs, as users see them: the mlp sample on the emulator, on two ranks."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from common import (BUILD, check, compile_sample, data_flags, finish, free_port, run, scratch, train,  # noqa: E402
                    worst_difference)


def losses(exe, *flags):
    log = pathlib.Path(exe).with_name("log.jsonl")
    log.unlink(missing_ok=True)
    return [line["loss"] for line in train(exe, "mlp", 5, log, flags)]


def processes(exe, *ranks):
    """Two ranks as processes, each with flags and variables of its own; returns their exit statuses and messages."""
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    jobs = [subprocess.Popen([str(x) for x in (exe, *data_flags("mlp"), "--steps", 2, *flags)],
                             env={**os.environ, **world, "RANK": str(rank), **env}, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for rank, (flags, env) in enumerate(ranks)]
    try:
        err = "".join(job.communicate(timeout=120)[1] for job in jobs)
    finally:
        for job in jobs:
            job.kill()
    return {job.returncode for job in jobs}, err


os.environ["NVCC"] = str(BUILD / "emulator" / "nvcc")
os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
with scratch() as folder:
    exe, ways = pathlib.Path(folder, "train"), pathlib.Path(folder, "ways")
    compile_sample("mlp", exe, ranks=2, extra=["--target", "cuda:sm_90", "--plan", "dp"])
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

    # Processes that do not round alike, or could.
    own = pathlib.Path(folder, "own")
    codes, err = processes(exe, (["--tune", ways], {}), (["--tune", own], {}))
    note = f"note: ranks may round differently: the file of --tune is {len(problems)} products with checksum "
    check("a rank that measures itself is noted", codes == {0} and err.count(note) == 1 and
          " at rank 0, but 0 products with checksum 0000000000000000 at rank 1; so copies of a weight" in err, codes, err)
    pathlib.Path(folder, "copy").write_text(ways.read_text())
    codes, err = processes(exe, (["--tune", ways], {}), (["--tune", pathlib.Path(folder, "copy")], {}))
    check("copies of a file are alike", codes == {0} and "round" not in err, codes, err)
    codes, err = processes(exe, (["--tune", ways], {}), ([], {}))
    check("--tune of one rank is an error", codes == {2} and
          "error: --tune is given at rank 0, but not given at rank 1" in err, codes, err)
    codes, err = processes(exe, ([], {"NVIDIA_TF32_OVERRIDE": "0"}), ([], {}))
    check("a variable of one rank is an error", codes == {2} and
          "error: NVIDIA_TF32_OVERRIDE is 0 at rank 0, but not set at rank 1\nhint: it is a variable of the environment" in err, codes, err)

    rough = losses(exe, "--tf32")
    check("TF32 rounds, a little", 0 < worst_difference(rough, plain) < 1e-2, rough, plain)
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    check("NVIDIA_TF32_OVERRIDE=0 forbids it", losses(exe, "--tf32") == plain)

finish()
