"""Exports a sample from PyTorch to ONNX:  python3 samples/export.py mlp|resnet|gpt2 [-o FILE]

The models are exported as they train: BatchNormalization and Dropout in training mode.  The batch
(and for gpt2 the length) stays symbolic; nnaot binds it with --batch and --dim.
"""

import argparse
import pathlib

import torch

import models

OPSET = {"mlp": 13, "resnet": 17, "gpt2": 18, "resnet18": 17}


def export(name, model, example, path, opset=None, fixed=False):
    input_name, x = example
    model.train()
    axes = None if fixed else {input_name: {0: "batch"}}
    torch.onnx.export(model, (x,), str(path), input_names=[input_name], output_names=["logits"],
                      opset_version=opset or OPSET[name], dynamic_axes=axes, dynamo=False,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("sample")
    p.add_argument("-o", "--output")
    p.add_argument("--bench", action="store_true", help="the model of the benchmark instead")
    a = p.parse_args()
    model, example = (models.bench if a.bench else models.sample)(a.sample)
    here = pathlib.Path(__file__).parent
    export(a.sample, model, example, a.output or here / a.sample / f"{a.sample}.onnx")
