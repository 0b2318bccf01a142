"""A model trains the same under any names of its inputs, outputs, weights and nodes.

    names.py [--models N] [--seed S]        12 of seed 1; a campaign takes more

Names consist of words that nnaot, C and the runtime use themselves, punctuation, JSON, control characters, UTF-8 and bytes that
are not UTF-8, empty ones (of nodes) and long ones.  Each model is compiled, trained for two steps, saved and evaluated; --loss
quotes the output.  Messages, dumps and JSON are UTF-8 without anything that a terminal obeys.
"""

import argparse
import json
import pathlib
import random
import unicodedata

import onnx_bytes
from common import NNAOT, check, compile_in_a_hurry, finish, read_log, run, scratch, write_npy
from onnx_bytes import field, node, tensor, value_info

WORDS = ["step", "seed", "lr", "loss", "labels", "target", "grad_norm", "loss_scale", "accuracy(y).right", "x", "int", "float", "main",
         "return", "NULL", "r", "RUN", "F", "P0", "V1", "update", "input", "output", "weight", "train", "eval", "grad:w", "w.exp_avg",
         "a, b", "mse(y)", "1e5", "0.5*y", 'say "y"', "back\\slash", "'", "{}", '{"a": [1]}', "%s%n", "$(true)", "`", "a\tb", "a\nb",
         "\x1b[31m", "\x9b31m", "a\u202eb", "\udcff\udcfe", "n\udce2\udc80", "größe", "名前", "🎲", "/a/b", "..", "a::b", "x[0]", "*", "#", "=", "n=1", "+", " ", "  y  ", "y y", "-o", "--help",
         "w" * 300]


def model(n):
    """Returns the model tanh(x w) v with the names n."""
    graph = (field(1, node("MatMul", [n["x"], n["w"]], [n["h"]], n["node 1"]))
             + field(1, node("Tanh", [n["h"]], [n["t"]], n["node 2"]))
             + field(1, node("MatMul", [n["t"], n["v"]], [n["y"]], n["node 1"] if n["same"] else n["node 3"]))
             + field(2, n["graph"]) + field(5, tensor(n["w"], [3, 4], [0.1 * (i - 5) for i in range(12)]))
             + field(5, tensor(n["v"], [4, 2], [0.2 * (i - 3) for i in range(8)]))
             + field(11, value_info(n["x"], [n["batch"], 3])) + field(12, value_info(n["y"], [n["batch"], 2])))
    return onnx_bytes.model(graph)


def in_nnaot(name):
    """Returns the name in nnaot: bytes that are not UTF-8 are escaped."""
    return "".join(f"\\x{ord(c) - 0xdc00:02x}" if "\udc80" <= c <= "\udcff" else c for c in name)


def harmless(text, controls="\n"):
    """Whether the bytes are UTF-8 that no terminal obeys."""
    text = text.decode()  # raises an error if not
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in controls + "\u200b\u200d" for c in text)


PLAIN = {k: k for k in ("x", "w", "v", "h", "t", "y", "graph", "batch", "node 1", "node 2", "node 3")} | {"same": False}


def draw(rng):
    """Returns random names: values have different, non-empty names; nodes may have any."""
    words = rng.sample(WORDS, 6)
    names = dict(zip(("x", "w", "v", "h", "t", "y"), words))
    return names | {k: rng.choice(WORDS + [""]) for k in ("graph", "node 1", "node 2", "node 3")} | {
        "batch": rng.choice([w for w in WORDS if "=" not in w]), "same": rng.random() < 0.5}


def losses(folder, names, cut):
    (folder / "m.onnx").write_bytes(model(names))
    names = {k: in_nnaot(v) if isinstance(v, str) else v for k, v in names.items()}
    quoted = names["y"].replace("\\", "\\\\").replace('"', '\\"')
    target = "target" if names["x"] != "target" else "wanted"
    loss = f'mse("{quoted}")' if target == "target" else f'mse("{quoted}",target=wanted)'
    run(NNAOT, folder / "m.onnx", "--batch", 4, "--loss", loss, "--optimizer", "adamw", *cut, "-o", folder / "m",
        "--dump-dir", folder / "dumps", "--summary", folder / "summary.json", "--report", folder / "report.html")
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    data = [("input", names["x"], "x.npy"), ("input", target, "t.npy"), ("eval-input", names["x"], "x.npy"),
            ("eval-input", target, "t.npy")]
    run(folder / "m", *(f for flag, name, file in data for f in (f"--{flag}", f"{name}={folder}/{file}")), "--steps", 2, "--log", log,
        "--save", folder / "w.safetensors", "--export", folder / "out.onnx")
    (folder / "describe.json").write_bytes(run(folder / "m", "--describe").encode(errors="surrogateescape"))
    header = (folder / "w.safetensors").read_bytes()
    (folder / "header.json").write_bytes(header[8:8 + int.from_bytes(header[:8], "little")])
    for file in [*folder.glob("*.json"), *(folder / "dumps").iterdir(), folder / "report.html", log]:
        check(f"{file.name} of {names} is harmless text", harmless(file.read_bytes(), "\n\t"), file.read_bytes())
        if file.suffix == ".json":
            json.loads(file.read_bytes())
    check(f"the weights of {names} have their names", set(json.loads((folder / "header.json").read_bytes())) - {"__metadata__"} ==
          {names["w"], names["v"]}, names)
    lines = read_log(log)
    return [l["loss"] for l in lines] + [l["grad_norm"] for l in lines] + [lines[-1]["eval_loss"]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--models", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    cuts = [[], ["-g", 2, "--plan", "dp"], ["-g", 2, "--plan", "tp", "--micro-batches", 2], ["-g", 2, "--plan", "zero3"]]
    with scratch() as folder:
        folder = pathlib.Path(folder)
        compile_in_a_hurry(folder)
        write_npy(folder / "x.npy", [0.1 * (i % 7 - 3) for i in range(24)], (8, 3))
        write_npy(folder / "t.npy", [0.1 * (i % 5 - 2) for i in range(16)], (8, 2))
        want = [losses(folder, PLAIN, cut) for cut in cuts]
        for i in range(a.models):
            names = draw(rng)
            got = losses(folder, names, cuts[i % len(cuts)])
            # Messages with such names contain no control sequences of the terminal.
            said = run(NNAOT, folder / "m.onnx", "--batch", 4, "--loss", "mse(\x1b[2Jno such)", "-o", folder / "m", ok=1)
            check(f"messages with {names} are harmless text", harmless(said.encode(errors="surrogateescape")), repr(said))
            check(f"names {names}", got == want[i % len(cuts)], got, want[i % len(cuts)])
    finish()


main()
