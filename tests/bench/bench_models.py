"""The models of tests/bench/run, in PyTorch: one row of MODELS each, with its batch, its data and its loss."""

import dataclasses
from typing import Callable

import models as samples
import torch
from architectures_written import UNet
from torch import nn
from torch.nn import functional as F

SEED = 20
IMAGES, WORDS = 1000, 50304  # classes of images; words of GPT-2, padded


# -- Vision ------------------------------------------------------------------------------------

class TransformerBlock(nn.Module):
    """Attention and an MLP with GELU (erf): before each a norm, as in ViT, or after each, as in BERT."""

    def __init__(self, width, heads, inner, norm_first):
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))

    def mlp(self, x):
        return self.fc2(F.gelu(self.fc1(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Vit(nn.Module):
    """A vision transformer (Dosovitskiy et al., 2021) whose head reads the mean of all patches."""

    def __init__(self, side, patch, layers, heads, width, inner):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.place = nn.Parameter(0.02 * torch.randn((side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, inner, True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, IMAGES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class DepthwiseCnn(nn.Module):
    """Inverted residuals of MobileNetV2 (Sandler et al., 2018) on images of 32x32."""

    class Block(nn.Module):
        def __init__(self, n_in, n, stride):
            super().__init__()
            inner = 4 * n_in
            self.skips = stride == 1 and n_in == n
            self.body = nn.Sequential(
                nn.Conv2d(n_in, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
                nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(),
                nn.Conv2d(inner, n, 1, bias=False), nn.BatchNorm2d(n))

        def forward(self, x):
            return x + self.body(x) if self.skips else self.body(x)

    def __init__(self):
        super().__init__()
        layers, n_in = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()], 16
        for n, stride in (16, 1), (24, 2), (24, 1), (48, 2), (48, 1):
            layers.append(self.Block(n_in, n, stride))
            n_in = n
        self.body, self.head = nn.Sequential(*layers), nn.Linear(n_in, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def torchvision_model(name):
    def make():
        import torchvision
        model = getattr(torchvision.models, name)()
        for part in model.modules():  # the data of dropout and stochastic depth would differ
            if hasattr(part, "p") and isinstance(part.p, float):
                part.p = 0.0
        return model
    return make


# -- Language ----------------------------------------------------------------------------------

class Bert(nn.Module):
    """Masked words (Devlin et al., 2019): every position has a label."""

    def __init__(self, words, tokens, layers, heads, width, inner):
        super().__init__()
        self.words, self.place, self.norm = nn.Embedding(words, width), nn.Embedding(tokens, width), nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads, inner, False) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, input_ids):
        place = self.place(torch.arange(input_ids.shape[1], device=input_ids.device))
        return self.head(self.blocks(self.norm(self.words(input_ids) + place)))


class Llama(nn.Module):
    """Llama 3 (2407.21783): RMS norms, rotary positions, grouped queries, SwiGLU, the head tied to the embedding."""

    class Block(nn.Module):
        def __init__(self, width, heads, groups, inner):
            super().__init__()
            self.heads, self.groups, self.size = heads, groups, width // heads
            self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
            self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
            self.down = nn.Linear(inner, width, bias=False)

        def rotate(self, x, cos, sin):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin

        def attention(self, x, cos, sin):
            b, t, c = x.shape
            q = self.q(x).view(b, t, self.heads, self.size).transpose(1, 2)
            k, v = (y(x).view(b, t, self.groups, self.size).transpose(1, 2) for y in (self.k, self.v))
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(b, t, c))

        def forward(self, x, cos, sin):
            x = x + self.attention(self.norm1(x), cos, sin)
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def __init__(self, words, tokens, layers, heads, groups, width, inner):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width, 1e-5)
        self.blocks = nn.ModuleList(self.Block(width, heads, groups, inner) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, 0.0, 0.02)
        angle = torch.arange(tokens)[:, None] / 500000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, input_ids):
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class CharRnn(nn.Module):
    """A character model of LSTM layers (Karpathy's char-rnn)."""

    def __init__(self, words, width, layers):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(words, width), nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, input_ids):
        return self.head(self.rnn(self.embed(input_ids))[0])


class Mamba(nn.Module):
    """Mamba-2 (2405.21060): the state space of a sequence of one chunk, as products with decaying masks."""

    class Block(nn.Module):
        def __init__(self, width, heads, state):
            super().__init__()
            self.inner, self.heads, self.state = 2 * width, heads, state
            self.norm, self.gate_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(self.inner, 1e-5)
            self.mixed = self.inner + 2 * state  # x, B and C, which the convolution mixes
            self.enter = nn.Linear(width, self.inner + self.mixed + heads, bias=False)
            self.conv = nn.Conv1d(self.mixed, self.mixed, 4, groups=self.mixed, padding=3)
            self.steps = nn.Parameter(torch.linspace(-4.0, -1.0, heads))  # softplus of these: 0.02 to 0.3
            self.decay = nn.Parameter(torch.linspace(0.0, 2.0, heads))  # logarithms
            self.skip, self.leave = nn.Parameter(torch.ones(heads)), nn.Linear(self.inner, width, bias=False)

        def forward(self, hidden):
            b, t, _ = hidden.shape
            z, xbc, step = self.enter(self.norm(hidden)).split([self.inner, self.mixed, self.heads], -1)
            xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :t].transpose(1, 2))
            x, into, out = xbc.split([self.inner, self.state, self.state], -1)
            x = x.view(b, t, self.heads, -1).transpose(1, 2)  # b h t p
            step = F.softplus(step + self.steps).transpose(1, 2)  # b h t
            total = torch.cumsum(-step * self.decay.exp()[:, None], -1)
            later = torch.triu(torch.ones(t, t, dtype=torch.bool, device=hidden.device), 1)
            decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, float("-inf")).exp()
            scores = (out @ into.transpose(1, 2))[:, None] * decay  # b h t t
            y = scores @ (x * step[..., None]) + self.skip[:, None, None] * x
            y = y.transpose(1, 2).reshape(b, t, self.inner)
            return hidden + self.leave(self.gate_norm(y * F.silu(z)))

    def __init__(self, words, layers, width, heads, state):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.RMSNorm(width, 1e-5)
        self.blocks = nn.Sequential(*(self.Block(width, heads, state) for _ in range(layers)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, 0.0, 0.02)

    def forward(self, input_ids):
        return self.head(self.norm(self.blocks(self.words(input_ids))))


# -- Recommendation ----------------------------------------------------------------------------

class Dlrm(nn.Module):
    """Click prediction (1906.00091): tables of categories, and products of all pairs of features."""

    def __init__(self, numbers, tables, rows, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = samples.Mlp([numbers, 256, 64, width])
        self.top = samples.Mlp([width + tables * (tables + 1) // 2, 256, 128, 2])
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])

    def forward(self, numbers, categories):
        x = self.bottom(numbers)
        t = torch.stack([x, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = (t @ t.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([x, pairs], -1))


# -- The table ---------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Ids:
    shape: tuple
    below: int

    def draw(self, rng, rows):
        return rng.integers(0, self.below, (rows, *self.shape))


@dataclasses.dataclass(frozen=True)
class Normal:
    shape: tuple

    def draw(self, rng, rows):
        return rng.standard_normal((rows, *self.shape), dtype="float32")


@dataclasses.dataclass(frozen=True)
class Model:
    title: str
    make: Callable
    batch: int
    inputs: dict  # by the names of forward()'s arguments: shapes are without the batch
    labels: Ids | None = None  # None: the loss is of the next token of input_ids
    convolutions: bool = False  # PyTorch is faster with channels last

    @property
    def loss(self):
        return "cross_entropy(logits)" if self.labels else "next_token(logits,input_ids)"

    def build(self):
        torch.manual_seed(SEED)
        return self.make().train()

    def data(self, rng, rows):
        labels = {"labels": self.labels} if self.labels else {}
        return {name: kind.draw(rng, rows) for name, kind in {**self.inputs, **labels}.items()}

    def loss_of(self, logits, tensors):
        if self.labels:
            return F.cross_entropy(logits.flatten(0, -2).float(), tensors["labels"].flatten())
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tensors["input_ids"][:, 1:].flatten())


def image(side):
    return {"x": Normal((3, side, side))}


def words(tokens, below):
    return {"input_ids": Ids((tokens,), below)}


MODELS = {
    "mlp": Model("MLP 784-512-512-10, batch 128", lambda: samples.Mlp([784, 512, 512, 10]), 128,
                 {"x": Normal((784,))}, Ids((), 10)),
    "resnet18": Model("ResNet-18, 64x64 images, batch 16",
                      lambda: samples.ResNet(3, [64, 128, 256, 512], [2, 2, 2, 2], IMAGES, large=True), 16,
                      image(64), Ids((), IMAGES), True),
    "resnet50": Model("ResNet-50, 96x96 images, batch 8", torchvision_model("resnet50"), 8, image(96), Ids((), IMAGES), True),
    "dwcnn": Model("Inverted residuals, 32x32 images, batch 16", DepthwiseCnn, 16, image(32), Ids((), 10), True),
    "mobilenetv3": Model("MobileNetV3-Large, 96x96 images, batch 16", torchvision_model("mobilenet_v3_large"), 16, image(96),
                         Ids((), IMAGES), True),
    "convnext": Model("ConvNeXt-Tiny, 64x64 images, batch 8", torchvision_model("convnext_tiny"), 8, image(64),
                      Ids((), IMAGES), True),
    "vit": Model("ViT 6x192, 64 patches, batch 16", lambda: Vit(64, 8, 6, 3, 192, 768), 16, image(64), Ids((), IMAGES)),
    "unet": Model("U-Net of 16 to 128 channels, 64x64 images, batch 8", lambda: UNet([16, 32, 64, 128], 5), 8, image(64),
                  Ids((64, 64), 5), True),
    "bert": Model("BERT 4x256, 16 x 128 tokens", lambda: Bert(8000, 128, 4, 4, 256, 1024), 16, words(128, 8000),
                  Ids((128,), 8000)),
    "gpt2": Model("GPT-2 6x384, 8 x 128 tokens", lambda: samples.Gpt2(WORDS, 128, 6, 6, 384), 8, words(128, WORDS)),
    "gpt2-124m": Model("GPT-2 124M, 4 x 64 tokens", lambda: samples.Gpt2(WORDS, 64, 12, 12, 768), 4, words(64, WORDS)),
    "llama": Model("Llama-style 150M, 4 x 64 tokens", lambda: Llama(32000, 64, 18, 12, 4, 768, 2048), 4, words(64, 32000)),
    "lstm": Model("LSTM 2x256, 32 x 64 characters", lambda: CharRnn(96, 256, 2), 32, words(64, 96)),
    "dlrm": Model("DLRM, 26 tables of 10,000 x 32, batch 256", lambda: Dlrm(13, 26, 10000, 32), 256,
                  {"numbers": Normal((13,)), "categories": Ids((26,), 10000)}, Ids((), 2)),
    "mamba": Model("Mamba-2 style 6x256, 8 x 128 tokens", lambda: Mamba(8000, 6, 256, 8, 64), 8, words(128, 8000)),
}


def parameters(name):
    return sum(p.numel() for p in {id(p): p for p in MODELS[name].build().parameters()}.values())
