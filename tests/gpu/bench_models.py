"""The models of the GPU benchmark, in PyTorch and as .onnx:  python3 bench_models.py NAME -o FILE.onnx

    gpt2-124m, gpt2-1558m   GPT-2 at 1024 tokens, vocabulary padded to 50304, no dropout
    gpt2-tiny               a GPT-2 for the emulator
    resnet50                torchvision's, images of 224 x 224
    vit-b16                 torchvision's, images of 224 x 224

A file is written node by node, as exporters write the model, with weights that are a hole in a sparse file: --init random
draws others, and a model of any size is written on a small machine.  So it needs onnx, and PyTorch for vit-b16 alone,
which is exported.  With --torch the others are exported, too, which takes five times the memory of their weights.
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

CLASSES = 1000
# Layers, heads, width, tokens, vocabulary.
GPT2 = {"gpt2-124m": (12, 12, 768, 1024, 50304), "gpt2-1558m": (48, 25, 1600, 1024, 50304), "gpt2-tiny": (2, 4, 64, 64, 256)}
# name of a benchmark: model, batch
BENCH = {
    "gpt2-124m-b32": ("gpt2-124m", 32),
    "gpt2-124m-b4": ("gpt2-124m", 4),
    "gpt2-124m-b64": ("gpt2-124m", 64),
    "gpt2-1558m-b16": ("gpt2-1558m", 16),
    "gpt2-tiny-b4": ("gpt2-tiny", 4),
    "resnet50-b128": ("resnet50", 128),
    "vit-b16-b128": ("vit-b16", 128),
}


def build(name):
    """The module in training mode, and an example of its input for a batch of 1."""
    sys.path[:0] = [str(HERE), str(HERE.parent.parent / "samples")]  # models.py is in the same folder in a bundle
    import models as samples
    import torch
    if name in GPT2:
        layers, heads, width, tokens, words = GPT2[name]
        model = samples.Gpt2(words, tokens, layers, heads, width)
        return model.train(), ("input_ids", torch.zeros(1, tokens, dtype=torch.int64))
    import torchvision
    model = {"resnet50": torchvision.models.resnet50, "vit-b16": torchvision.models.vit_b_16}[name]()
    return model.train(), ("x", torch.zeros(1, 3, 224, 224))


def loss_spec(name):
    return "next_token(logits,input_ids)" if name in GPT2 else "cross_entropy(logits)"


def units(name):
    """The items of a step, tokens or images, and their number."""
    model, batch = BENCH[name]
    return ("tokens", batch * GPT2[model][3]) if model in GPT2 else ("images", batch)


def flop(name):
    """FLOP of the matrix products of one step: forward, and twice that for backward; causal attention counts half."""
    model, batch = BENCH[name]
    if model in GPT2:
        layers, _, width, tokens, words = GPT2[model]
        weights = layers * 12 * width**2 + words * width
        return 6 * weights * batch * tokens + 6 * layers * tokens**2 * width * batch
    return 3 * batch * {"resnet50": 2 * 4.09e9, "vit-b16": 2 * 17.58e9}[model]


def needs_torch(name):
    return name == "vit-b16"


def export(name, path):
    import torch
    model, (input_name, x) = build(name)
    torch.onnx.export(model, (x,), str(path), input_names=[input_name], output_names=["logits"], opset_version=17,
                      dynamic_axes={input_name: {0: "batch"}}, dynamo=False, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING)


def write(name, path):
    """Writes the file as the exporter would; the weights are a hole of their size in a file beside it."""
    sys.path[:0] = [str(HERE.parent / "bench")]
    import large_models
    import onnx
    if name in GPT2:
        layers, heads, width, tokens, words = GPT2[name]
        made = large_models.gpt(name, path.parent, layers, width, heads, tokens, words, tied=True)
    else:
        made = large_models.resnet(name, path.parent, CLASSES)
    weights = onnx.load(made, load_external_data=False).graph.initializer
    with open(made.with_suffix(".bin"), "wb") as f:
        f.truncate(sum(int(e.value) for w in weights for e in w.external_data if e.key == "length"))
    made.replace(path)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", choices=[*GPT2, "resnet50", "vit-b16"])
    p.add_argument("-o", "--output", required=True, type=pathlib.Path)
    p.add_argument("--torch", action="store_true")
    a = p.parse_args()
    (export if a.torch or needs_torch(a.name) else write)(a.name, a.output.resolve())
