"""Writes torch_gradients.txt: PyTorch's loss and gradients of the cases of gradient_cases.py, in double.

    python3 tests/eval/torch_gradients.py [OPERATOR ...]

A gradient is its norm and its projection on cos(1), cos(2), cos(3) …; onnx_gradients.c has the loss. With operators, only
shows these. It needs torch and onnx.
"""

import pathlib
import sys

import torch
from gradient_cases import CASES

FILE = pathlib.Path(__file__).with_name("torch_gradients.txt")


def lines_of(case):
    leaves, operands = [], []
    for name, value, checked in zip(case.names, case.values, case.checked):
        if value is None:
            continue
        operands.append(torch.tensor(value).requires_grad_(checked))
        if checked:
            leaves.append((name, operands[-1]))
    out = case.torch(*operands)
    loss = 0
    for k, y in enumerate(out if isinstance(out, (tuple, list)) else [out]):
        y = y.contiguous().flatten()
        loss = loss + (y * torch.cos(0.7 * torch.arange(1, y.numel() + 1, dtype=torch.float64) + k)).sum()
    yield f"{case.name} loss {loss.item():.15g}"
    if not leaves:
        return
    grads = torch.autograd.grad(loss, [leaf for _, leaf in leaves], allow_unused=True, materialize_grads=True)
    for (name, _), g in zip(leaves, grads):
        projection = (g.flatten() * torch.cos(torch.arange(1, g.numel() + 1, dtype=torch.float64))).sum()
        yield f"{case.name} {name} {g.norm().item():.15g} {projection.item():.15g}"


def main():
    lines, errors = [], []
    for case in CASES:
        if isinstance(case.torch, str) or (sys.argv[1:] and case.op not in sys.argv[1:]):
            continue
        try:
            lines += lines_of(case)
        except Exception as e:
            errors.append(f"{case.name}: {type(e).__name__}: {e}")
    if errors:
        sys.exit("\n".join(errors))
    if sys.argv[1:]:
        print("\n".join(lines))
    else:
        FILE.write_text("\n".join(lines) + "\n")


main()
