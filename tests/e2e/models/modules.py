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


class GatedAttention(nn.Module):
    """AlphaFold's attention over the last dimension but one, of all in the dimension before; with a pair, that is its bias."""

    def __init__(self, width, heads, pair):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.pair = nn.ModuleList([nn.LayerNorm(pair), nn.Linear(pair, heads, bias=False)]) if pair else None
        if pair:
            nn.init.uniform_(self.pair[0].bias)                      # softmax cancels it: its gradient is 0 up to rounding

    def forward(self, x, pair=None):                                 # (batch, a, b, width), (batch, b, b, pair)
        a, b, width = (int(n) for n in x.shape[1:])
        y = self.norm(x)
        q, k, v = (f(y).reshape(-1, a, b, self.heads, width // self.heads).transpose(2, 3) for f in (self.q, self.k, self.v))
        s = torch.matmul(q * (width // self.heads)**-0.5, k.transpose(-1, -2))
        if self.pair is not None:
            norm, bias = self.pair
            s = s + bias(norm(pair)).permute(0, 3, 1, 2).unsqueeze(1)
        o = torch.matmul(torch.softmax(s, -1), v).transpose(2, 3).reshape(-1, a, b, width)
        return self.out(o * torch.sigmoid(self.gate(y)))


class Triangle(nn.Module):
    """Multiplicative update of the pairs along the edges that leave a node, or that arrive at one."""

    def __init__(self, width, leaving):
        super().__init__()
        self.leaving, self.norm, self.inner = leaving, nn.LayerNorm(width), nn.LayerNorm(width)
        self.a, self.b, self.gate_a, self.gate_b, self.out, self.gate = (nn.Linear(width, width) for _ in range(6))

    def forward(self, z):                                            # (batch, R, R, width)
        y = self.norm(z)
        a = self.a(y) * torch.sigmoid(self.gate_a(y))
        b = self.b(y) * torch.sigmoid(self.gate_b(y))
        a, b = (a.permute(0, 3, 1, 2), b.permute(0, 3, 2, 1)) if self.leaving else (a.permute(0, 3, 2, 1), b.permute(0, 3, 1, 2))
        return self.out(self.inner(torch.matmul(a, b).permute(0, 2, 3, 1))) * torch.sigmoid(self.gate(y))


class Transition(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.relu(self.up(self.norm(x))))


class EvoformerBlock(nn.Module):
    def __init__(self, width, pair, outer):
        super().__init__()
        self.rows, self.columns = GatedAttention(width, 2, pair), GatedAttention(width, 2, 0)
        self.msa, self.pairs = Transition(width), Transition(pair)
        self.norm, self.left, self.right = nn.LayerNorm(width), nn.Linear(width, outer), nn.Linear(width, outer)
        self.outer = nn.Linear(outer * outer, pair)
        self.leaving, self.arriving = Triangle(pair, True), Triangle(pair, False)
        self.start, self.end = GatedAttention(pair, 2, pair), GatedAttention(pair, 2, pair)

    def forward(self, m, z):                                         # (batch, S, R, width), (batch, R, R, pair)
        m = m + self.rows(m, z)
        m = m + self.columns(m.transpose(1, 2)).transpose(1, 2)
        m = m + self.msa(m)
        y = self.norm(m)
        s, r, outer = int(m.shape[1]), int(m.shape[2]), self.left.out_features
        o = torch.matmul(self.left(y).permute(0, 2, 3, 1).reshape(-1, r * outer, s), self.right(y).reshape(-1, s, r * outer))
        o = o.reshape(-1, r, outer, r, outer).transpose(2, 3).reshape(-1, r, r, outer * outer)
        z = z + self.outer(o)
        z = z + self.leaving(z)
        z = z + self.arriving(z)
        z = z + self.start(z, z)
        z = z + self.end(z.transpose(1, 2), z).transpose(1, 2)
        return m, z + self.pairs(z)


class Evoformer(nn.Module):
    """AlphaFold2's trunk with its recycling: three passes, each on the input and on trained norms of both results of the
    pass before, which are detached.  The first pass has nothing to recycle."""

    TIMES, PAIR = 3, 8

    def __init__(self):
        super().__init__()
        self.msa, self.left, self.right = nn.Linear(8, WIDTH), nn.Linear(8, self.PAIR), nn.Linear(8, self.PAIR)
        self.last_m, self.last_z = nn.LayerNorm(WIDTH), nn.LayerNorm(self.PAIR)
        self.h = nn.ModuleList(EvoformerBlock(WIDTH, self.PAIR, 4) for _ in range(2))
        self.masked, self.distogram = nn.Linear(WIDTH, 8), nn.Linear(self.PAIR, 8)

    def forward(self, msa):                                          # (batch, S, R, 8)
        m0, target = self.msa(msa), msa[:, 0]
        z0 = self.left(target).unsqueeze(2) + self.right(target).unsqueeze(1)
        m, z = m0, z0
        for i in range(self.TIMES):
            if i:
                m, z = m0 + self.last_m(m.detach()), z0 + self.last_z(z.detach())
            for block in self.h:
                m, z = block(m, z)
        return self.masked(m) + self.distogram(z).mean((1, 2), keepdim=True)


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


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that tags every token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * WIDTH, 16)

    def forward(self, input_ids):                                    # (batch, LENGTH)
        return self.head(self.lstm(self.embed(input_ids))[0])


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class GroupedAttention(nn.Module):
    """Causal attention with rotary positions; two heads of queries read one of keys and values."""

    def __init__(self):
        super().__init__()
        self.n = WIDTH // HEADS
        self.q, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        angle = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(self.n // 2) / (self.n // 2))
        self.register_buffer("cos", torch.cos(torch.cat([angle, angle], -1)), persistent=False)
        self.register_buffer("sin", torch.sin(torch.cat([angle, angle], -1)), persistent=False)

    def heads(self, x, turn):
        x = x.reshape(-1, LENGTH, x.shape[-1] // self.n, self.n).transpose(1, 2)
        if not turn:
            return x
        half = self.n // 2
        return x * self.cos + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sin

    def forward(self, x):
        q, k, v = self.heads(self.q(x), True), self.heads(self.k(x), True), self.heads(self.v(x), False)
        k, v = (y.repeat_interleave(2, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(-1, LENGTH, WIDTH))


class Router(nn.Module):
    """Mixtral's experts: the two best of each token by top_k, with a softmax of their two scores, and SwiGLU inside."""

    N, INSIDE = 8, 16

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, self.N, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.randn(self.N, WIDTH, self.INSIDE) * WIDTH**-0.5) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(self.N, self.INSIDE, WIDTH) * self.INSIDE**-0.5)

    def forward(self, x):
        x = x.reshape(-1, WIDTH)
        scores = self.gate(x)
        best, index = scores.topk(2, -1)
        p = torch.zeros_like(scores).scatter(-1, index, F.softmax(best, -1))  # (tokens, N)
        y = torch.matmul(F.silu(torch.matmul(x, self.w1)) * torch.matmul(x, self.w3), self.w2)
        return (y * p.t().unsqueeze(-1)).sum(0).reshape(-1, LENGTH, WIDTH)


class Routed(nn.Module):
    """Mixtral's experts as transformers exports them (batched_mm): a row for each token and choice, times the matrices of its
    expert alone; one product for the gate and the value of SwiGLU."""

    N, INSIDE = 8, 8

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, self.N, bias=False)
        self.gate_up = nn.Parameter(torch.randn(self.N, 2 * self.INSIDE, WIDTH) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(self.N, WIDTH, self.INSIDE) * self.INSIDE**-0.5)

    def forward(self, x):
        x = x.reshape(-1, WIDTH)
        p, index = F.softmax(self.gate(x), -1).topk(2, -1)
        p = p / p.sum(-1, keepdim=True)
        expert = index.reshape(-1)
        rows = x.unsqueeze(1).expand(-1, 2, -1).reshape(-1, WIDTH)
        gate, up = torch.bmm(self.gate_up[expert], rows.unsqueeze(-1)).squeeze(-1).chunk(2, -1)
        y = torch.bmm(self.down[expert], (F.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (y * p.reshape(-1, 1)).reshape(-1, 2, WIDTH).sum(1).reshape(-1, LENGTH, WIDTH)


class Mixtral(nn.Module):
    def __init__(self, experts=Router):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.attn, self.experts = (nn.ModuleList(make() for _ in range(2)) for make in (GroupedAttention, experts))
        self.norm = nn.ModuleList(RmsNorm() for _ in range(5))
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for i, (attn, experts) in enumerate(zip(self.attn, self.experts)):
            x = x + attn(self.norm[2 * i](x))
            x = x + experts(self.norm[2 * i + 1](x))
        return self.lm_head(self.norm[4](x))


class SwiGlu(nn.Module):
    """Llama's feed-forward: a gate times a value, both three times as wide as the layer."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class WindowAttention(nn.Module):
    """Attention inside windows of 4x4, with a table of biases by relative position; every second block shifts the windows."""

    SIDE, WINDOW = 8, 4

    def __init__(self, shift):
        super().__init__()
        self.shift, w = shift, self.WINDOW
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.randn((2 * w - 1)**2, HEADS) * 0.2)
        at = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        apart = at[:, :, None] - at[:, None, :] + w - 1
        self.register_buffer("index", (apart[0] * (2 * w - 1) + apart[1]).flatten(), persistent=False)
        # A window at the edge has parts of two sides of the image, which do not see one another.
        side = torch.zeros(self.SIDE)
        side[self.SIDE - w:self.SIDE - shift], side[self.SIDE - shift:] = 1, 2
        region = self.windows((side[:, None] * 3 + side)[None, :, :, None])[..., 0]
        apart = region[:, :, None] != region[:, None, :]
        self.register_buffer("mask", apart.float() * -100.0, persistent=False)

    def windows(self, x):                                            # (batch, SIDE, SIDE, n) -> (batch * 4, 16, n)
        w, m, n = self.WINDOW, self.SIDE // self.WINDOW, x.shape[-1]
        return x.reshape(-1, m, w, m, w, n).transpose(2, 3).reshape(-1, w * w, n)

    def forward(self, x):
        w, m = self.WINDOW, self.SIDE // self.WINDOW
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        q, k, v = (y.reshape(-1, w * w, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for y in self.qkv(self.windows(x)).split(WIDTH, -1))
        scores = torch.matmul(q, k.transpose(-1, -2)) * (WIDTH // HEADS)**-0.5
        scores = scores + self.bias[self.index].reshape(w * w, w * w, HEADS).permute(2, 0, 1)
        if self.shift:
            scores = scores.reshape(-1, m * m, HEADS, w * w, w * w) + self.mask[:, None]
            scores = scores.reshape(-1, HEADS, w * w, w * w)
        x = self.out(torch.matmul(F.softmax(scores, -1), v).transpose(1, 2).reshape(-1, w * w, WIDTH))
        x = x.reshape(-1, m, m, w, w, WIDTH).transpose(2, 3).reshape(-1, self.SIDE, self.SIDE, WIDTH)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class Swin(nn.Module):
    """Two blocks of a Swin transformer, the second with shifted windows, and a merger of patches."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 2, 2)
        self.ln_1, self.ln_2 = (nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2)) for _ in range(2))
        self.attn = nn.ModuleList(WindowAttention(shift) for shift in (0, 2))
        self.mlp = nn.ModuleList(Mlp(0.0) for _ in range(2))
        self.ln_m, self.merge = nn.LayerNorm(4 * WIDTH), nn.Linear(4 * WIDTH, 2 * WIDTH, bias=False)
        self.ln_f, self.head = nn.LayerNorm(2 * WIDTH), nn.Linear(2 * WIDTH, 16)

    def forward(self, x):                                            # (batch, 1, 16, 16)
        x = self.patch(x).permute(0, 2, 3, 1)
        for ln_1, attn, ln_2, mlp in zip(self.ln_1, self.attn, self.ln_2, self.mlp):
            x = x + attn(ln_1(x))
            x = x + mlp(ln_2(x))
        x = torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        x = self.merge(self.ln_m(x)).flatten(1, 2)
        return self.head(self.ln_f(x).mean(1))


class Messages(nn.Module):
    """A message of every edge, from its source and its target, summed and maximised at its target."""

    def __init__(self):
        super().__init__()
        self.edge, self.node = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x, source, target):                            # (batch, nodes, WIDTH), (batch, edges), the same
        source, target = (i.unsqueeze(-1).expand(-1, -1, WIDTH) for i in (source, target))
        m = F.silu(self.edge(torch.cat([x.gather(1, source), x.gather(1, target)], -1)))
        none = torch.zeros_like(x)
        most = none.scatter_reduce(1, target, m, "amax")
        return x + torch.tanh(self.node(torch.cat([x, none.scatter_add(1, target, m), most], -1)))


class Gnn(nn.Module):
    """Three rounds of messages in graphs of 16 nodes and 32 edges, and a class of each graph."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 16)
        self.rounds = nn.ModuleList(Messages() for _ in range(3))

    def forward(self, x, source, target):                            # (batch, nodes, 8)
        x = self.embed(x)
        for layer in self.rounds:
            x = layer(x, source, target)
        return self.head(x.mean(1))


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


class T5Attention(nn.Module):
    """Of `x` to `memory`, with a bias for every head, query and key."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x, memory, bias=None):
        q, k, v = (y.reshape(-1, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for y in (self.q(x), self.k(memory), self.v(memory)))
        scores = q @ k.transpose(-1, -2)
        y = F.softmax(scores if bias is None else scores + bias, -1) @ v
        return self.o(y.transpose(1, 2).reshape(-1, LENGTH, WIDTH))


class T5Layer(nn.Module):
    def __init__(self, decodes):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = RmsNorm(), T5Attention(), RmsNorm()
        if decodes:
            self.ln_m, self.cross = RmsNorm(), T5Attention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, bias, memory=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, bias)
        if memory is not None:
            x = x + self.cross(self.ln_m(x), memory)
        return x + self.down(F.relu(self.up(self.ln_2(x))))


class T5(nn.Module):
    """Encoder and decoder of four layers each, with one table for both and for the logits, and biases of relative positions."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.shared.weight, 0.0, 0.5)
        self.bias = nn.ModuleList(nn.Embedding(8, HEADS) for _ in range(2))
        self.encoder, self.decoder = (nn.ModuleList(T5Layer(decodes) for _ in range(4)) for decodes in (False, True))
        self.ln_e, self.ln_d = RmsNorm(), RmsNorm()
        at = torch.arange(LENGTH)
        self.register_buffer("index", (at - at[:, None]).clamp(-4, 3) + 4, persistent=False)

    def forward(self, input_ids, decoder_input_ids):
        near, causal = (bias(self.index).permute(2, 0, 1).unsqueeze(0) for bias in self.bias)
        causal = causal.masked_fill(torch.arange(LENGTH) > torch.arange(LENGTH)[:, None], -1e9)
        x, y = self.shared(input_ids), self.shared(decoder_input_ids)
        for layer in self.encoder:
            x = layer(x, near)
        x = self.ln_e(x)
        for layer in self.decoder:
            y = layer(y, causal, x)
        return F.linear(self.ln_d(y) * WIDTH**-0.5, self.shared.weight)


class PackedLayer(nn.Module):
    """Causal attention on one product for q, k and v, taken apart as a library does it; and an MLP whose gate is
    packed with its other half, as in Phi-3 and ChatGLM."""

    SIZE = WIDTH // HEADS

    def __init__(self, kind, heads_of_keys):
        super().__init__()
        self.kind, self.of_keys = kind, heads_of_keys
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * heads_of_keys) * self.SIZE)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def parts(self, y):
        """q, k and v, of (-1, heads, LENGTH, SIZE)."""
        if self.kind == "timm":
            return y.reshape(-1, LENGTH, 3, HEADS, self.SIZE).permute(2, 0, 3, 1, 4).unbind(0)
        if self.kind == "torch":  # MultiheadAttention
            y = y.unflatten(-1, (3, WIDTH)).unsqueeze(0).transpose(0, -2).squeeze(-2)
            parts = y[0], y[1], y[2]
        elif self.kind == "split":  # ChatGLM
            n = self.of_keys * self.SIZE
            parts = y.split([WIDTH, n, n], -1)
        else:  # Falcon, one head of keys
            y = y.view(-1, LENGTH, HEADS + 2, self.SIZE)
            parts = y[..., :-2, :], y[..., -2:-1, :], y[..., -1:, :]
        return [x.reshape(-1, LENGTH, x.shape[2] if x.ndim == 4 else x.shape[-1] // self.SIZE, self.SIZE).transpose(1, 2)
                for x in parts]

    def forward(self, x):
        q, k, v = self.parts(self.qkv(self.ln_1(x)))
        if self.of_keys < HEADS:
            each = -1, self.of_keys, HEADS // self.of_keys, LENGTH, self.SIZE
            k, v = (y[:, :, None].expand(each).reshape(-1, HEADS, LENGTH, self.SIZE) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(-1, LENGTH, WIDTH))
        gate, up = self.up(self.ln_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        kinds = [("timm", HEADS), ("torch", HEADS), ("split", HEADS // 2), ("falcon", 1)]
        self.h = nn.ModuleList(PackedLayer(*kind) for kind in kinds)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe.weight
        for layer in self.h:
            x = layer(x)
        return self.head(x)


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
    if name == "routed":
        return Mixtral(Routed)
    if name == "llama":
        return Mixtral(SwiGlu)
    if name in ("unet", "unet_resize"):
        return unet(name == "unet")
    return {"vit": Vit, "axial": Axial, "recycle": Recycle, "warp": Warp, "tagger": Tagger, "mixtral": Mixtral,
            "swin": Swin, "gnn": Gnn, "evoformer": Evoformer, "t5": T5, "packed": Packed}[name]()
