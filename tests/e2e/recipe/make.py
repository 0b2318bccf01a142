"""Writes a small GPT, its data, and its training in PyTorch by nanoGPT's recipe:  python3 tests/e2e/recipe/make.py

Needs torch, onnx and onnxscript.  Decay on matrices alone, warmup and cosine, clipping, accumulation, evaluation, shards of
tokens in .bin files: expected.json has the losses and gradient norms of STEPS steps and the losses of the evaluations.  The
files are committed: recipe.py needs no PyTorch.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2] / "tools"), str(HERE.parent)]
import nnaot_export  # noqa: E402
import stack_traces  # noqa: E402

LENGTH, WIDTH, HEADS, LAYERS, WORDS = 16, 32, 4, 2, 48
ROWS, ACCUMULATE, STEPS, EVAL_EVERY = 4, 2, 50, 25
LR, LEAST_LR, WARMUP, DECAY, CLIP = 1e-2, 1e-3, 10, 0.1, 0.8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [t.reshape(*t.shape[:2], HEADS, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(WIDTH, dim=2)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """With the head tied to the table of words, as in nanoGPT."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.05)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text(n, rng):
    """A word mostly follows from the one before it."""
    ids = [0]
    while len(ids) < n:
        ids.append((5 * ids[-1] + 7) % WORDS if rng.random() < 0.9 else int(rng.integers(0, WORDS)))
    return np.array(ids, np.uint16)


def windows(ids):
    n = len(ids) // LENGTH
    return torch.from_numpy(ids[:n * LENGTH].astype(np.int64)).reshape(n, LENGTH)


def lr_of(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LEAST_LR + (LR - LEAST_LR) * (1 + math.cos(math.pi * done)) / 2


def loss_of(model, rows):
    return F.cross_entropy(model(rows)[:, :-1].flatten(0, 1), rows[:, 1:].flatten())


def train(model, rows, held_out):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95))
    result = {"loss": [], "grad_norm": [], "eval_loss": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for k in range(ACCUMULATE):
            first = (step * ACCUMULATE + k) * ROWS
            loss = loss_of(model, rows[[i % len(rows) for i in range(first, first + ROWS)]]) / ACCUMULATE
            loss.backward()
            total += loss.item()
        result["loss"].append(total)
        result["grad_norm"].append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        optimizer.step()
        if (step + 1) % EVAL_EVERY == 0:
            with torch.no_grad():
                result["eval_loss"].append(loss_of(model, held_out).item())
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    shards = [text(n, rng) for n in (2010, 1700)]
    held_out = text(700, rng)
    for i, ids in enumerate(shards):
        ids.tofile(HERE / f"train_{i}.bin")
    held_out.tofile(HERE / "held_out.bin")
    rows = torch.cat([windows(ids) for ids in shards])
    model = GPT()
    nnaot_export.export(model, rows[:ROWS], HERE / "gpt.onnx", output_names=["logits"])
    stack_traces.remove(HERE / "gpt.onnx")
    (HERE / "expected.json").write_text(json.dumps(train(model, rows, windows(held_out)), indent=1) + "\n")
