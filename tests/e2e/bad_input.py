"""User errors: a clear message, the right exit status, and no files remain."""

import array
import pathlib
import struct
import subprocess
import sys

from common import NNAOT, SAMPLES, compile_sample, data_flags, run, scratch

MLP = SAMPLES / "mlp/mlp.onnx"
LOSS = ["--loss", "cross_entropy(logits)"]


def npy(path, descr, shape, data, fortran=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
    return path


failures = []


def expect(what, command, status, *words, absent=None):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300)
    said, code, before = done.stdout, done.returncode, len(failures)
    for word in words:
        if word not in said:
            failures.append(f"{what}: does not say '{word}':\n{said[-600:]}")
    if code != status:
        failures.append(f"{what}: exit status {code}, not {status}:\n{said[-600:]}")
    if absent and list(absent.parent.glob(absent.name + "*")):
        failures.append(f"{what}: left {list(absent.parent.glob(absent.name + '*'))}")
    print("ok" if len(failures) == before else "--", what, flush=True)


def compiling(folder):
    out = folder / "out"
    for what, args, status, words in [
        ("no such model", [folder / "none.onnx", "-o", out], 1, ["none.onnx"]),
        ("no output given", [MLP, "--batch", 4, *LOSS], 2, ["-o"]),
        ("an option that is not there", [MLP, "--bach", 4, "-o", out], 2, ["--bach"]),
        ("a loss that is not there", [MLP, "--batch", 4, "--loss", "hinge(logits)", "-o", out], 1, ["hinge"]),
        ("an output that is not there", [MLP, "--batch", 4, "--loss", "cross_entropy(nowhere)", "-o", out], 1,
         ["nowhere", "logits"]),
        ("an optimizer that is not there", [MLP, "--batch", 4, *LOSS, "--optimizer", "adamm", "-o", out], 2,
         ["adamm"]),
        ("an optimizer option that is not there",
         [MLP, "--batch", 4, *LOSS, "--optimizer", "sgd:momentun=0.9", "-o", out], 2, ["momentun", "momentum"]),
        ("an unbound batch", [MLP, *LOSS, "-o", out], 1, ["batch", "--batch"]),
        ("a batch that ranks do not divide", [MLP, "--batch", 6, "-g", 4, "--plan", "dp", *LOSS, "-o", out], 1, ["6", "4"]),
        ("an output that cannot be written", [MLP, "--batch", 4, *LOSS, "-o", folder / "no/such/out"], 1, ["no/such"]),
        ("an output that is a device", [MLP, "--batch", 4, *LOSS, "-o", "/dev/null"], 1, ["/dev/null", "not a file"]),
        ("a plan that is not there", [MLP, "--batch", 4, *LOSS, "--plan", "magic", "-o", out], 2, ["magic"]),
    ]:
        expect(what, [NNAOT, *args], status, *words, absent=out)
    empty, cut = folder / "empty.onnx", folder / "cut.onnx"
    empty.write_bytes(b"")
    cut.write_bytes(MLP.read_bytes()[:20000])
    for what, model in ("an empty model", empty), ("a model cut short", cut):
        expect(what, [NNAOT, model, "--batch", 4, *LOSS, "-o", out], 1, model.name, "error", absent=out)


def training(folder):
    exe = folder / "exe"
    compile_sample("mlp", exe)
    x, y = data_flags("mlp")[1], data_flags("mlp")[3]
    rows = b"\0" * (16 * 64 * 4)
    labels = struct.pack("<16q", *[3] * 15, 10)

    def case(what, words, status=1, inputs=None, extra=()):
        flags = [f for i in (inputs or [x, y]) for f in ("--input", i)]
        expect(what, [exe, *flags, "--steps", 2, *extra], status, *words)

    case("an input missing", ["labels"], inputs=[x])
    case("an input the model lacks", ["z"], inputs=[x, y, "z=" + x[2:]])
    case("a file that is not there", ["nowhere.npy"], inputs=["x=nowhere.npy", y])
    for what, descr, shape, data in [
        ("the wrong type", "<i4", (16, 64), rows),
        ("the wrong shape", "<f4", (16, 32, 2), rows),
        ("a row of the wrong length", "<f4", (32, 32), rows),
        ("a file cut short", "<f4", (16, 64), rows[:100]),
        ("a size that overflows", "<f4", (2**62, 64), rows),
    ]:
        case(f"npy of {what}", ["bad.npy"], inputs=[f"x={npy(folder / 'bad.npy', descr, shape, data)}", y])
    (folder / "text.npy").write_text("these are no numbers")
    case("npy that is text", ["text.npy"], inputs=[f"x={folder / 'text.npy'}", y])
    few = npy(folder / "x.npy", "<f4", (16, 64), rows)
    case("inputs of different lengths", ["16", "512"], inputs=[f"x={few}", y])
    wrong = npy(folder / "y.npy", "<i8", (16,), labels)
    case("a label out of range", ["label 10 ", f"note: in 'labels', row 15 of '{wrong}' has 10"], inputs=[f"x={few}", f"labels={wrong}"])
    # On any rank, in any micro-batch and order of rows, the message names the row of the file.
    compile_sample("mlp", folder / "exe2", extra=["-g", 2, "--plan", "dp", "--micro-batches", 2])
    minus = npy(folder / "minus.npy", "<i8", (16,), struct.pack("<16q", *[3] * 13, -100, 3, 3))
    expect("a label that PyTorch ignores", [folder / "exe2", "--input", f"x={few}", "--input", f"labels={minus}", "--steps", 1,
                                            "--shuffle", 5], 1, f"note: in 'labels', row 13 of '{minus}' has -100",
           "hint: to ignore such labels, as PyTorch does, compile with ignore_index=-100 in --loss")
    # -100, a common ignored label, is no token.
    compile_sample("gpt2", folder / "gpt2")
    tokens = npy(folder / "tokens.npy", "<i4", (4000,), struct.pack("<4000i", *[7] * 200, -100, *[7] * 3799))
    expect("a token out of range", [folder / "gpt2", "--tokens", f"input_ids={tokens}", "--steps", 9], 1, "out of range", f"note: in 'input_ids', token 200 of '{tokens}' is -100")
    case("a log that cannot be written", ["no/such"], extra=["--log", folder / "no/such/log"])
    case("weights saved to a device", ["/dev/null", "not a file"], extra=["--save", "/dev/null"])
    case("a flag that is not there", ["--stepz"], 2, extra=["--stepz", 3])
    expect("the wrong world size", ["mpirun", "-n", 2, exe, "--input", x, "--input", y, "--steps", 2], 1, "2", "1")
    save = folder / "w.safetensors"
    case("resuming from damage only", ["checkpoint"], extra=["--checkpoint-dir", _damaged(folder), "--resume",
                                                              "--save", save])
    if save.exists():
        failures.append("a failed resume wrote --save")
    # Big-endian files are read or refused, never misread.
    good = run(exe, "--input", x, "--input", y, "--steps", 1)
    values = array.array("f", pathlib.Path(x[2:]).read_bytes()[128:])
    values.byteswap()
    big = npy(folder / "big.npy", ">f4", (512, 64), values.tobytes())
    said = run(exe, "--input", f"x={big}", "--input", y, "--steps", 1, ok=None)
    if "big.npy" not in said and said.split("loss")[1][:8] != good.split("loss")[1][:8]:
        failures.append(f"big-endian input was misread: {said} instead of {good}")


def _damaged(folder):
    exe, place = folder / "exe", folder / "damaged"
    run(exe, *data_flags("mlp"), "--steps", 2, "--checkpoint-dir", place, "--checkpoint-every", 1)
    for path in place.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
    return place


with scratch() as name:
    compiling(pathlib.Path(name))
    training(pathlib.Path(name))
print("\n".join(failures))
sys.exit(bool(failures))
