"""The models of the GPU benchmark in PyTorch, and their export:  python3 bench_models.py NAME -o FILE.onnx

    gpt2-124m, gpt2-1558m   GPT-2 at 1024 tokens, vocabulary padded to 50304, no dropout
    resnet50                torchvision's, images of 224 x 224
    vit-b16                 torchvision's, images of 224 x 224

The weights of the file mean nothing: nnaot compiles it with --init random.
"""

import argparse
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "samples")]  # in a bundle models.py lies beside this
import models as samples  # noqa: E402

TOKENS, VOCABULARY, CLASSES = 1024, 50304, 1000
GPT2 = {"gpt2-124m": (12, 12, 768), "gpt2-1558m": (48, 25, 1600)}
# name of a benchmark: model, batch
BENCH = {
    "gpt2-124m-b4": ("gpt2-124m", 4),
    "gpt2-124m-b32": ("gpt2-124m", 32),
    "gpt2-124m-b64": ("gpt2-124m", 64),
    "gpt2-1558m-b16": ("gpt2-1558m", 16),
    "resnet50-b128": ("resnet50", 128),
    "vit-b16-b128": ("vit-b16", 128),
}


def build(name):
    """The module in training mode, and an example of its input for a batch of 1."""
    if name in GPT2:
        layers, heads, width = GPT2[name]
        model = samples.Gpt2(VOCABULARY, TOKENS, layers, heads, width)
        return model.train(), ("input_ids", torch.zeros(1, TOKENS, dtype=torch.int64))
    import torchvision
    model = {"resnet50": torchvision.models.resnet50, "vit-b16": torchvision.models.vit_b_16}[name]()
    return model.train(), ("x", torch.zeros(1, 3, 224, 224))


def loss_spec(name):
    return "next_token(logits,input_ids)" if name in GPT2 else "cross_entropy(logits)"


def export(name, path):
    model, (input_name, x) = build(name)
    torch.onnx.export(model, (x,), str(path), input_names=[input_name], output_names=["logits"], opset_version=17,
                      dynamic_axes={input_name: {0: "batch"}}, dynamo=False, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", choices=[*GPT2, "resnet50", "vit-b16"])
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    export(a.name, a.output)
