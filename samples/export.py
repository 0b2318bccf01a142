"""Exports a sample from PyTorch to ONNX:  python3 samples/export.py mlp|resnet|gpt2 [-o FILE]

Uses tools/nnaot_export in training mode, with the TorchScript exporter: its files are the same in every PyTorch version.  The
batch stays symbolic; nnaot binds it with --batch.
"""

import argparse
import pathlib
import sys

import models

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import nnaot_export  # noqa: E402

OPSET = {"mlp": 13, "resnet": 17, "gpt2": 18}


def export(name, model, example, path, opset=None):
    input_name, x = example
    nnaot_export.export(model, {input_name: x}, path, output_names=["logits"], opset=opset or OPSET[name],
                        exporters=["torchscript"])


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("sample")
    p.add_argument("-o", "--output")
    a = p.parse_args()
    model, example = models.sample(a.sample)
    here = pathlib.Path(__file__).parent
    export(a.sample, model, example, a.output or here / a.sample / f"{a.sample}.onnx")
