#!/usr/bin/env python3
"""Real architectures from PyTorch through each exporter, and their losses compared with PyTorch's:  architectures.py [MODEL ...]

    --build DIR     the build folder with nnaot (build)
    --steps N       steps of each optimizer (10)
    --limit X       the largest accepted relative difference of a loss (1e-4)
    --list          the models

Needs torch, torchvision, transformers and onnx.  Each model is a small one of its family, in training mode without
dropout.  A row of the table is a model and an exporter: tools/nnaot_export, torch.onnx.export with dynamo=True and
optimize=False, and with dynamo=False without folding; then the exporter's error, nnaot's, or the differences of the losses of
SGD and AdamW from PyTorch's.  The exit status is 1 if an exported model does not compile or trains
differently.  Files of dynamo=False do not mark the padding row of an Embedding: a model that has one (KNOWN) is in
the table, but is not counted.
"""

import argparse
import contextlib
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import nnaot_export  # noqa: E402

BATCH, TOKENS, WORDS = 4, 12, 50
ROWS = 3 * BATCH
SMALL = dict(vocab_size=WORDS, hidden_size=16, num_hidden_layers=2)
BERT = dict(SMALL, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0)


class Logits(nn.Module):
    """A model of transformers as a function of tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


class EncoderDecoder(Logits):
    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits


def from_transformers(name, config, wrapper=Logits, **sizes):
    def make():
        import transformers
        return wrapper(getattr(transformers, name)(getattr(transformers, config)(**sizes)))
    return make


def resnet18():
    import torchvision
    return torchvision.models.resnet18(num_classes=10)


def tokens(rng, padding=None):
    ids = rng.integers(2, WORDS, (ROWS, TOKENS))
    if padding is not None:
        ids[::2, 9:] = padding
    return {"input_ids": ids}, rng.integers(0, WORDS, (ROWS, TOKENS))


def two_texts(rng):
    ids, labels = tokens(rng)
    return ids | {"decoder_input_ids": rng.integers(2, WORDS, (ROWS, TOKENS))}, labels


def images(rng):
    return {"x": rng.standard_normal((ROWS, 3, 64, 64)).astype(np.float32)}, rng.integers(0, 10, ROWS)


# Of a model: its constructor, its data, and the learning rates of SGD and AdamW.  Normalisation over a batch of 4 is
# ill-conditioned: with larger rates PyTorch in f32 is 1e-2 from PyTorch in f64 after ten steps.
MODELS = {
    "gpt2": (from_transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                               resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False), tokens, 0.1, 1e-3),
    "bert": (from_transformers("BertForMaskedLM", "BertConfig", max_position_embeddings=16, **BERT), tokens, 0.1, 1e-3),
    "llama": (from_transformers("LlamaForCausalLM", "LlamaConfig", intermediate_size=32, num_attention_heads=4,
                                num_key_value_heads=2, max_position_embeddings=16, use_cache=False, **SMALL), tokens, 0.1, 1e-3),
    "t5": (from_transformers("T5ForConditionalGeneration", "T5Config", EncoderDecoder, vocab_size=WORDS, d_model=16, d_kv=8,
                             d_ff=32, num_layers=2, num_heads=2, dropout_rate=0, use_cache=False), two_texts, 0.1, 1e-3),
    "mpnet": (from_transformers("MPNetForMaskedLM", "MPNetConfig", max_position_embeddings=18, **BERT),
              lambda rng: tokens(rng, padding=1), 0.1, 1e-3),
    "mamba": (from_transformers("MambaForCausalLM", "MambaConfig", state_size=4, use_cache=False, **SMALL), tokens, 0.1, 1e-3),
    "resnet18": (resnet18, images, 1e-5, 1e-6),
}
EXPORTERS = ["nnaot-export", "dynamo", "torchscript"]
KNOWN = {("mpnet", "torchscript"): "the file does not say that row 1 is padding"}


def build(name):
    torch.manual_seed(3)
    return MODELS[name][0]().train()


def losses(name, optimizer, rate, inputs, labels, steps):
    """Returns PyTorch's losses, for rows in their order."""
    model = build(name)
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
    update = make(model.parameters(), lr=rate, **({"weight_decay": 0.1} if optimizer == "adamw" else {}))
    found = []
    for step in range(steps):
        rows = [(step * BATCH + i) % ROWS for i in range(BATCH)]
        out = model(*(torch.from_numpy(x[rows]) for x in inputs.values()))
        loss = F.cross_entropy(out.flatten(0, -2), torch.from_numpy(labels[rows]).flatten())
        update.zero_grad()
        loss.backward()
        update.step()
        found.append(loss.item())
    return found


@contextlib.contextmanager
def silence():
    """Suppresses all output, that of C++ included."""
    sys.stdout.flush()
    with open(os.devnull, "w") as null:
        kept = [os.dup(fd) for fd in (1, 2)]
        try:
            for fd in 1, 2:
                os.dup2(null.fileno(), fd)
            yield
        finally:
            for fd, old in zip((1, 2), kept):
                os.dup2(old, fd)
                os.close(old)


def export(name, exporter, inputs, path):
    """Returns the exporter's name, or its error."""
    example = tuple(torch.from_numpy(x[:BATCH]) for x in inputs.values())
    names = dict(input_names=list(inputs), output_names=["logits"])
    try:
        with warnings.catch_warnings(), silence():
            warnings.simplefilter("ignore")
            if exporter == "nnaot-export":
                return nnaot_export.export(build(name), example, path, output_names=["logits"]), ""
            if exporter == "dynamo":
                batch = torch.export.Dim("batch")
                torch.onnx.export(build(name), example, path, dynamo=True, optimize=False, external_data=False, verbose=False,
                                  dynamic_shapes=tuple({0: batch} for _ in example), **names)
            else:
                torch.onnx.export(build(name), example, path, dynamo=False, do_constant_folding=False,
                                  training=torch.onnx.TrainingMode.TRAINING,
                                  dynamic_axes={k: {0: "batch"} for k in inputs}, **names)
        return exporter, ""
    except Exception as e:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(e)).strip()  # colours
        return "", (text.splitlines() or [type(e).__name__])[0][:90]


def command(arguments, folder):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, cwd=folder)
    told = [line for line in done.stderr.splitlines() if "error:" in line] or done.stderr.splitlines() or ["no error"]
    return done.returncode, told[0][:110]


def compare(a, folder, onnx, optimizer, rate, inputs, want):
    """Returns the largest relative difference, or an error."""
    decay = ",weight_decay=0.1" if optimizer == "adamw" else ""
    code, error = command([a.build / "bin" / "nnaot", onnx, "--batch", BATCH, "--loss", "cross_entropy(logits)", "--optimizer",
                           f"{optimizer}:lr={rate:g}{decay}", "-o", "exe"], folder)
    if code:
        return None, error
    flags = [f for k in (*inputs, "labels") for f in ("--input", f"{k}={k}.npy")]
    code, error = command(["./exe", *flags, "--steps", len(want), "--log", "log.jsonl"], folder)
    if code:
        return None, error
    got = [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()]
    return max(abs(x - y) / abs(y) for x, y in zip(got, want, strict=True)), ""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL")
    p.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--limit", type=float, default=1e-4)
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list:
        print("\n".join(MODELS))
        return 0
    unknown = [m for m in a.models if m not in MODELS]
    if unknown:
        p.error(f"unknown: {', '.join(unknown)}")
    logging.disable(logging.WARNING)
    bad = 0
    for name in a.models or MODELS:
        _, data, *rates = MODELS[name]
        inputs, labels = data(np.random.default_rng(1))
        want = {o: losses(name, o, rate, inputs, labels, a.steps) for o, rate in zip(("sgd", "adamw"), rates)}
        for exporter in EXPORTERS:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                for k, x in (*inputs.items(), ("labels", labels)):
                    np.save(folder / f"{k}.npy", x)
                by, error = export(name, exporter, inputs, folder / "model.onnx")
                said = []
                for optimizer, rate in zip(want, rates) if by else ():
                    off, why = compare(a, folder, folder / "model.onnx", optimizer, rate, inputs, want[optimizer])
                    wrong = off is None or not off < a.limit
                    bad += wrong and (name, exporter) not in KNOWN
                    said.append(f"{optimizer} {why if off is None else f'{off:.1e}'}{'  WRONG' * wrong}")
                how = f" ({by})" if exporter == "nnaot-export" and by else ""
                said += [KNOWN[name, exporter]] if (name, exporter) in KNOWN else []
                print(f"{name:10}{exporter + how:28}{'   '.join(said) or f'not exported: {error}'}", flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
