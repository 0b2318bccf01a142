"""Writes results of torch.optim, for tests/ops/optim.c:

    python tests/ops/torch_optim.py > tests/ops/optim_reference.txt

Five steps of each optimizer in double precision, on gradients that do not depend on the weights. A case
is a line `case NAME OP lr=… gscale=… ATTRIBUTE=…`, the weights `w0`, and for each step the gradient `g`
before its multiplication by gscale, and the weights `w` after the step. lamb is not in torch.optim: here it is
the paper's algorithm 2 (You et al. 2020), and `onnx` is the arithmetic of ai.onnx.preview.training.Adam with the
correction from the first step on.
"""
import math

import torch

STEPS, N = 5, 4
LR, GSCALE = 0.1, 0.5


class Lamb:
    def __init__(self, params, lr, betas, eps, weight_decay):
        (self.w,) = params
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.m, self.v, self.t = torch.zeros_like(self.w), torch.zeros_like(self.w), 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        g = self.w.grad
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g * g
        m, v = self.m / (1 - b1**self.t), self.v / (1 - b2**self.t)
        r = m / (v.sqrt() + self.eps) + self.weight_decay * self.w
        w_norm, r_norm = self.w.norm(), r.norm()
        trust = w_norm / r_norm if w_norm > 0 and r_norm > 0 else 1.0
        self.w -= self.lr * trust * r


class OnnxAdam(Lamb):
    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        g = self.w.grad + self.weight_decay * self.w
        self.m = b1 * self.m + (1 - b1) * g
        self.v = b2 * self.v + (1 - b2) * g * g
        lr = self.lr * math.sqrt(1 - b2**self.t) / (1 - b1**self.t)
        self.w -= lr * self.m / (self.v.sqrt() + self.eps)


def adam(**more):
    return dict(betas=(0.9, 0.99), eps=1e-6, **more)


CASES = [
    ("sgd", "sgd", torch.optim.SGD, dict(weight_decay=0.0)),
    ("sgd_decay", "sgd", torch.optim.SGD, dict(weight_decay=0.1)),
    ("momentum", "sgd_momentum", torch.optim.SGD, dict(momentum=0.9)),
    ("dampened", "sgd_momentum", torch.optim.SGD, dict(momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("nesterov", "sgd_momentum", torch.optim.SGD, dict(momentum=0.8, nesterov=True, weight_decay=0.05)),
    ("adam", "adam", torch.optim.Adam, adam()),
    ("adam_decay", "adam", torch.optim.Adam, adam(weight_decay=0.1)),
    ("adamw", "adam", torch.optim.AdamW, adam(weight_decay=0.1)),
    ("adam_onnx", "adam", OnnxAdam, dict(betas=(0.9, 0.99), eps=1e-2, weight_decay=0.1)),
    ("adagrad", "adagrad", torch.optim.Adagrad, dict(lr_decay=0.1, eps=1e-6, weight_decay=0.1)),
    ("lamb", "lamb", Lamb, adam(weight_decay=0.1)),
    ("lamb_zero", "lamb", Lamb, adam(weight_decay=0.1)),
]


def line(what, numbers):
    print(what, *(repr(x) for x in numbers))


def main():
    print("# Made by torch_optim.py with torch", torch.__version__)
    for name, op, cls, options in CASES:
        generator = torch.Generator().manual_seed(len(name))
        start = torch.randn(N, generator=generator, dtype=torch.float64)
        if name == "lamb_zero":
            start.zero_()
        attrs = {k: v for k, v in options.items() if k != "betas"}
        if "betas" in options:
            attrs["beta1"], attrs["beta2"] = options["betas"]
        if cls is torch.optim.AdamW:
            attrs["decoupled"] = True
        if cls is OnnxAdam:
            attrs["onnx"] = True
        print("\ncase", name, op, f"lr={LR}", f"gscale={GSCALE}", *(f"{k}={float(v)!r}" for k, v in attrs.items()))
        w = torch.nn.Parameter(start.clone())
        optimizer = cls([w], lr=LR, **options)
        line("w0", start.tolist())
        for _ in range(STEPS):
            g = torch.randn(N, generator=generator, dtype=torch.float64)
            w.grad = g * GSCALE
            optimizer.step()
            line("g ", g.tolist())
            line("w ", w.tolist())


if __name__ == "__main__":
    main()
