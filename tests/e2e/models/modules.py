"""The models in PyTorch, as users write them, without any use of nnaot."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, VOCABULARY, LENGTH = 16, 8, 64, 16


class Attention(nn.Module):
    """Attention over the last dimension but one, with any leading dimensions; packed: one product for q, k and v."""

    def __init__(self, causal, dropout, packed=False):
        super().__init__()
        self.causal, self.packed = causal, packed
        if packed:
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        else:
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        lead = [-1, *(int(n) for n in x.shape[1:-1])]  # only the batch is symbolic
        parts = self.qkv(x).split(WIDTH, -1) if self.packed else (self.q(x), self.k(x), self.v(x))
        q, k, v = (y.reshape(*lead, HEADS, WIDTH // HEADS).transpose(-2, -3) for y in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.drop(self.out(y.transpose(-2, -3).reshape(*lead, WIDTH)))


class Mlp(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.down(F.gelu(self.up(x))))


class Experts(nn.Module):
    """Each token goes to its two best experts by the gate.  All experts compute all tokens, and the results of
    the others have weight 0: the program has static shapes."""

    N, INSIDE = 8, 8

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, self.N, bias=False)
        self.up = nn.Parameter(torch.randn(self.N, WIDTH, self.INSIDE) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(self.N, self.INSIDE, WIDTH) * self.INSIDE**-0.5)

    def forward(self, x):
        x, shape = x.reshape(-1, WIDTH), (-1, LENGTH, WIDTH)
        p = F.softmax(self.gate(x), -1)
        best = p.detach().amax(-1, keepdim=True)
        second = p.detach().masked_fill(p.detach() >= best, 0.0).amax(-1, keepdim=True)
        p = torch.where(p >= second, p, 0.0)
        p = p / p.sum(-1, keepdim=True)                              # (tokens, N)
        y = torch.matmul(F.gelu(torch.matmul(x, self.up)), self.down)  # (N, tokens, WIDTH)
        return (y * p.t().unsqueeze(-1)).sum(0).reshape(shape)


class Block(nn.Module):
    def __init__(self, mlp, causal=False, dropout=0.0, packed=False):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(causal, dropout, packed), mlp

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Tokens(nn.Module):
    """A language model: gpt, bert and moe.  Tied like GPT-2, which also packs its attention."""

    def __init__(self, mlp, causal, dropout=0.0, tied=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(mlp(), causal, dropout, tied) for _ in range(2))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            nn.init.normal_(self.wte.weight, 0.0, 0.2)
            self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        x = self.drop(self.wte(input_ids) + self.wpe(torch.arange(LENGTH)))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Vit(nn.Module):
    """Images of 8x8 in patches of 2x2."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 2, 2)
        self.place = nn.Parameter(torch.randn(16, WIDTH) * 0.02)
        self.h = nn.ModuleList(Block(Mlp(0.0)) for _ in range(2))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x).mean(1))


class AxialBlock(nn.Module):
    """AlphaFold's Evoformer: attention along rows, then along columns, then an MLP for each position."""

    def __init__(self):
        super().__init__()
        self.ln_row, self.ln_column, self.ln_mlp = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.row, self.column, self.mlp = Attention(False, 0.0), Attention(False, 0.0), Mlp(0.0)

    def forward(self, x):                                            # (batch, rows, columns, WIDTH)
        x = x + self.row(self.ln_row(x))
        x = x + self.column(self.ln_column(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp(self.ln_mlp(x))


class Axial(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.h = nn.ModuleList(AxialBlock() for _ in range(2))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):                                            # (batch, rows, columns, 8)
        x = self.embed(x)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


class Recycle(nn.Module):
    """AlphaFold's recycling: the same blocks three times, each time on the input and the result of the last. Only the
    last time has gradients; exporters lose that, so nnaot gets --detach."""

    TIMES = 3

    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Linear(8, WIDTH), nn.LayerNorm(WIDTH)
        self.h = nn.ModuleList(Block(Mlp(0.0), packed=True) for _ in range(3))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):                                            # (batch, LENGTH, 8)
        x = self.embed(x)
        y = torch.zeros_like(x)
        for _ in range(self.TIMES):
            y = x + self.last(y.detach())
            for block in self.h:
                y = block(y)
        return self.head(self.ln_f(y))


class Unet(nn.Module):
    """A U-Net on images of 8x8: two steps down, two steps up by transposed convolutions or by interpolation."""

    def __init__(self, up):
        super().__init__()
        self.into = nn.Conv2d(1, 8, 3, padding=1)
        self.down = nn.ModuleList([nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)])
        self.up = up
        self.join = nn.ModuleList([nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(24, 8, 3, padding=1)])
        self.out = nn.Conv2d(8, 8, 1)

    def forward(self, x):                                            # (batch, 1, 8, 8)
        x = F.relu(self.into(x))
        kept = []
        for down in self.down:
            kept.append(x)
            x = F.relu(down(x))
        for up, join in zip(self.up, self.join):
            x = F.relu(join(torch.cat([up(x), kept.pop()], 1)))
        return self.out(x).permute(0, 2, 3, 1)                       # (batch, 8, 8, classes)


def unet(transposed):
    if transposed:
        return Unet(nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2),
                                   nn.ConvTranspose2d(16, 16, 3, 2, 1, output_padding=1, groups=2)]))
    return Unet(nn.ModuleList([nn.Upsample(scale_factor=2, mode="nearest"),
                               nn.Upsample(size=(8, 8), mode="bilinear", align_corners=False)]))


class Warp(nn.Module):
    """Features of an image at points that it determines: gradients of the image and of the points."""

    def __init__(self):
        super().__init__()
        self.features, self.points = nn.Conv2d(1, 16, 3, padding=1), nn.Linear(64, 128)
        self.out = nn.Conv2d(16, 8, 1)

    def forward(self, x):                                            # (batch, 1, 8, 8)
        at = torch.arange(8) / 4 - 0.9
        grid = torch.stack([at.expand(8, 8), at[:, None].expand(8, 8)], -1)
        grid = grid + 0.2 * torch.tanh(self.points(x.flatten(1))).reshape(-1, 8, 8, 2)
        x = torch.tanh(self.features(x))
        y = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        y = y + F.grid_sample(x, grid, mode="bicubic", padding_mode="zeros", align_corners=True)
        return self.out(y).permute(0, 2, 3, 1)                       # (batch, 8, 8, classes)


def model(name):
    torch.manual_seed(20)
    if name == "wide":
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                             nn.Linear(32, 16))
    if name in ("gpt", "gpt_tied"):
        return Tokens(lambda: Mlp(0.1), causal=True, dropout=0.1, tied=name == "gpt_tied")
    if name == "bert":
        return Tokens(lambda: Mlp(0.0), causal=False)
    if name == "moe":
        return Tokens(Experts, causal=True)
    if name in ("unet", "unet_resize"):
        return unet(name == "unet")
    return {"vit": Vit, "axial": Axial, "recycle": Recycle, "warp": Warp}[name]()
