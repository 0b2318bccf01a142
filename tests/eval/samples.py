"""The samples through nnaot-eval: PyTorch's gradients, and the same training step under every plan.

    BUILD=build python tests/eval/samples.py [SAMPLE ...]

Exit status 77, which ctest takes as skipped, without numpy.

SAMPLE/expected.json has PyTorch's gradients of the first step as norms and products with cos(1), cos(2), …
The whole step, optimizer included, is then compared between one device and several, micro-batches, fused ops
and planned memory.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin" / "nnaot-eval"
TOLERANCE = 1e-4
BATCH = {"mlp": 16, "resnet": 16, "gpt2": 4}
LOSS = {
    "mlp": "cross_entropy(logits)",
    "resnet": "cross_entropy(logits)",
    "gpt2": "next_token(logits,input_ids)",
}
DISTRIBUTED = [
    "shard(mesh=dp:2),comm",
    "shard(mesh=dp:4),comm,bucket_grads,fuse,plan_memory",
    "shard(mesh=acc:2:time+dp:2),comm,bucket_grads,fuse,plan_memory",
]
# BatchNormalization couples the rows of a batch: it can be split among ranks, but not into micro-batches.
COUPLED = {"resnet"}


def inputs(name, folder):
    b = BATCH[name]
    sample = ROOT / "samples" / name
    if name == "gpt2":
        if not (sample / "tokens.npy").exists():
            subprocess.run([sys.executable, ROOT / "samples" / "data.py", "text"], check=True)
        rows = {"input_ids": numpy.load(sample / "tokens.npy")[: b * 64].reshape(b, 64).astype(numpy.int64)}
    else:
        rows = {"x": numpy.load(sample / "x.npy")[:b], "labels": numpy.load(sample / "labels.npy")[:b]}
    arguments = []
    for key, values in rows.items():
        numpy.save(folder / f"{key}.npy", values)
        arguments += ["--input", f"{key}={folder / key}.npy"]
    return arguments


def evaluate(name, arguments):
    command = [PROGRAM, ROOT / "samples" / name / f"{name}.onnx", f"--batch={BATCH[name]}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stderr, end="")
    if done.returncode:
        print(*command)
    return done.returncode == 0


def check_gradients(name, given, folder, more):
    expected = json.loads((ROOT / "samples" / name / "expected.json").read_text())["gradients"]
    forward = f'simplify,raise,loss(spec="{LOSS[name]}"),simplify,autodiff'
    outputs = []
    for i, key in enumerate(expected):
        outputs += ["--output", f"grad:{key}={folder / str(i)}.npy"]
    if not evaluate(name, [f"--passes={forward}", *given, *outputs, *more]):
        return False
    worst, where = 0, None
    for i, (key, (norm, product)) in enumerate(expected.items()):
        g = numpy.load(folder / f"{i}.npy").astype(numpy.float64).flatten()
        got = g @ numpy.cos(numpy.arange(1, g.size + 1))
        apart = max(abs(numpy.linalg.norm(g) - norm), abs(got - product)) / norm
        if not apart <= worst:
            worst, where = apart, key
    print(f"{name} {' '.join(more)}: {len(expected)} gradients, largest difference {worst:.1e} of {where}")
    return worst < TOLERANCE


def check_plans(name, given):
    step = f'simplify,raise,loss(spec="{LOSS[name]}"),autodiff,optimizer(name="%s" clip=1),lower_batch_norm,simplify'
    ok = True
    for optimizer in "sgd:momentum=0.9", "adamw:weight_decay=0.1", "lamb":
        one = step % optimizer
        for plan in DISTRIBUTED:
            if name in COUPLED and "time" in plan:
                continue
            same = evaluate(name, [f"--passes={one},{plan}", f"--same-as={one}", "--tolerance=1e-4", *given])
            print(f"{name} {optimizer} {plan}: {'same' if same else 'DIFFERS'}")
            ok &= same
    return ok


def main():
    ok = True
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    for name in sys.argv[1:] or BATCH:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            given = inputs(name, folder)
            ok &= check_gradients(name, given, folder, [])
            ok &= check_gradients(name, given, folder, ["--kernels=cpu"])
            ok &= check_plans(name, given)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
