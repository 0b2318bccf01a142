"""Small architectures that are written here: recurrent, graph, diffusion, flow, and others."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from architecture_base import CLASSES, TOKENS, WORDS, model


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(WORDS, 16), nn.LSTM(16, 24, 2, batch_first=True), nn.Linear(24, WORDS)

    def forward(self, input_ids):
        return self.head(self.rnn(self.embed(input_ids))[0])


class Tagger(CharLSTM):
    """A bidirectional LSTM."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(16, 12, bidirectional=True, batch_first=True), nn.Linear(24, WORDS)


class GRUClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 16, 2, bidirectional=True, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, series):
        return self.head(self.rnn(series)[0].mean(1))


class SequenceToSequence(nn.Module):
    """GRUs with additive attention (Bahdanau et al., 2015)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.keys, self.queries, self.score = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.head = nn.Linear(32, WORDS)

    def forward(self, input_ids, decoder_input_ids):
        memory, state = self.encoder(self.embed(input_ids))
        h, _ = self.decoder(self.embed(decoder_input_ids), state)
        scores = self.score(torch.tanh(self.keys(memory)[:, None] + self.queries(h)[:, :, None]))[..., 0]
        return self.head(torch.cat([h, scores.softmax(-1) @ memory], -1))


class GraphBase(nn.Module):
    """A graph of 9 nodes, one for all rows; messages go along its edges, by index_add."""

    def __init__(self):
        super().__init__()
        a = [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 3, 6, 2, 5]
        b = [1, 2, 3, 4, 5, 6, 7, 8, 0, 4, 7, 1, 6, 8]
        self.register_buffer("source", torch.tensor(a + b))
        self.register_buffer("sink", torch.tensor(b + a))


class GCN(GraphBase):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, CLASSES)
        self.register_buffer("degree", torch.bincount(self.sink, minlength=9).float()[:, None])

    def spread(self, h):
        return torch.zeros_like(h).index_add(1, self.sink, h[:, self.source]) / self.degree

    def forward(self, nodes):
        return self.spread(self.second(F.relu(self.spread(self.first(nodes)))))


class GAT(GraphBase):
    """Graph attention: a softmax over the edges into a node, by scatter_reduce and scatter_add."""

    def __init__(self):
        super().__init__()
        self.values, self.score, self.head = nn.Linear(6, 16), nn.Linear(32, 1), nn.Linear(16, CLASSES)

    def forward(self, nodes):
        h = self.values(nodes)
        scores = F.leaky_relu(self.score(torch.cat([h[:, self.source], h[:, self.sink]], -1))[..., 0], 0.2)
        sink = self.sink.expand_as(scores)
        most = torch.full_like(h[..., 0], -1e9).scatter_reduce(1, sink, scores, "amax")
        weight = (scores - most.detach().gather(1, sink)).exp()
        total = torch.zeros_like(h[..., 0]).scatter_add(1, sink, weight)
        mixed = h[:, self.source] * (weight / total.gather(1, sink))[..., None]
        return self.head(F.elu(torch.zeros_like(h).scatter_add(1, sink[..., None].expand_as(mixed), mixed)))


class GIN(GraphBase):
    """A graph isomorphism network: a class of the whole graph."""

    def __init__(self):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, nodes):
        return self.mlp((1 + self.eps) * nodes + torch.zeros_like(nodes).index_add(1, self.sink, nodes[:, self.source])).sum(1)


class VAE(nn.Module):
    """A convolutional variational autoencoder; its random numbers are an input."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(256, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 256), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, binary, noise):
        mean, log_variance = self.encoder(binary).chunk(2, -1)
        made = self.decoder(mean + noise * (log_variance / 2).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(made, binary) + 0.01 * divergence


class VQVAE(nn.Module):
    """A codebook with a straight-through gradient."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 4, 2, 1))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))
        self.book = nn.Embedding(16, 8)

    def forward(self, gray):
        z = self.encoder(gray).permute(0, 2, 3, 1)
        distance = z.square().sum(-1, keepdim=True) - 2 * z @ self.book.weight.T + self.book.weight.square().sum(-1)
        code = self.book(distance.argmin(-1))
        loss = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        return loss + F.mse_loss(self.decoder((z + (code - z).detach()).permute(0, 3, 1, 2)), gray)


class Double(nn.Sequential):
    def __init__(self, n_in, n):
        super().__init__(nn.Conv2d(n_in, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True),
                         nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Segmentation (Ronneberger et al., 2015): up by ConvTranspose, or by interpolation."""

    def __init__(self, widths=(8, 16, 32), classes=5, bilinear=False):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.down = nn.ModuleList([Double(a, b) for a, b in [(3, widths[0]), *pairs]])
        double = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.rise = nn.ModuleList([nn.Sequential(double, nn.Conv2d(b, a, 1)) if bilinear
                                   else nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs[::-1]])
        self.up = nn.ModuleList([Double(2 * a, a) for a, _ in pairs[::-1]])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for rise, block, skip in zip(self.rise, self.up, kept[-2::-1]):
            x = block(torch.cat([skip, rise(x)], 1))
        return self.head(x).permute(0, 2, 3, 1)


class BilinearUNet(UNet):
    def __init__(self):
        super().__init__(bilinear=True)


class DiffusionBlock(nn.Module):
    def __init__(self, n_in, n):
        super().__init__()
        self.norm, self.conv, self.time = nn.GroupNorm(4, n_in), nn.Conv2d(n_in, n, 3, padding=1), nn.Linear(16, n)
        self.norm2, self.conv2 = nn.GroupNorm(4, n), nn.Conv2d(n, n, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n, 1) if n_in != n else nn.Identity()

    def forward(self, x, t):
        h = self.conv(F.silu(self.norm(x))) + self.time(F.silu(t))[..., None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class DiffusionUNet(nn.Module):
    """Predicts the noise of an image at a time (Ho et al., 2020), with attention in the middle."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
        self.a, self.b, self.c, self.d = DiffusionBlock(8, 8), DiffusionBlock(8, 16), DiffusionBlock(16, 16), DiffusionBlock(24, 8)
        self.norm, self.attention = nn.GroupNorm(4, 16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.shrink, self.rise = nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 16, 3, padding=1)
        signal = torch.cos(torch.linspace(0, 1.5, 100)).square()
        self.register_buffer("signal", signal)

    def forward(self, gray, image_noise, time):
        share = self.signal[time][:, None, None, None]
        x = share.sqrt() * gray + (1 - share).sqrt() * image_noise
        angle = time[:, None].float() * torch.exp(torch.arange(8) * (-math.log(1e4) / 8))
        t = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        first = self.a(self.first(x), t)
        h = self.b(self.shrink(first), t)
        flat = self.norm(h).flatten(2).transpose(1, 2)
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(h)
        h = self.rise(F.interpolate(self.c(h, t), scale_factor=2, mode="nearest"))
        return F.mse_loss(self.head(self.d(torch.cat([h, first], 1), t)), image_noise)


class Generator(nn.Module):
    """A generator and a discriminator of a GAN, trained by the generator's loss (DCGAN)."""

    def __init__(self):
        super().__init__()
        self.make = nn.Sequential(nn.Linear(8, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 8, 4, 2, 1),
                                  nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())
        self.judge = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 4, 2, 1), nn.LeakyReLU(0.2),
                                   nn.Flatten(), nn.Linear(128, 1))

    def forward(self, noise, gray):
        fake = self.make(noise)
        judged = F.softplus(-self.judge(gray)).mean() + F.softplus(self.judge(fake.detach())).mean()
        return judged + F.softplus(-self.judge(fake)).mean()


class TCN(nn.Module):
    """Causal dilated convolutions with weight normalisation."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList([norm(nn.Conv1d(4 if i == 0 else 16, 16, 3, dilation=2 ** i)) for i in range(3)])
        self.head = nn.Linear(16, CLASSES)

    def forward(self, signal):
        h = signal
        for i, layer in enumerate(self.layers):
            y = F.relu(layer(F.pad(h, (2 * 2 ** i, 0))))
            h = y + h if i else y
        return self.head(h[..., -1])


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(4, 8, 1)
        self.gates = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=2 ** i) for i in range(3)])
        self.skips, self.head = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(3)]), nn.Linear(8, CLASSES)

    def forward(self, signal):
        h, total = self.first(signal), 0
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            y = F.glu(gate(F.pad(h, (2 ** i, 0))), 1)
            total, h = total + skip(y), h + y
        return self.head(F.relu(total).amax(-1))


class DLRM(nn.Module):
    """Recommendation: tables of categories, and products of all pairs of features."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(9, 8, mode="sum") for _ in range(4)])
        self.bottom, self.top = nn.Sequential(nn.Linear(12, 8), nn.ReLU()), nn.Linear(8 + 10, CLASSES)
        self.register_buffer("rows", torch.tril_indices(5, 5, -1)[0])
        self.register_buffer("columns", torch.tril_indices(5, 5, -1)[1])

    def forward(self, features, categories):
        x = self.bottom(features)
        t = torch.stack([x, *(table(categories[:, i:i + 1]) for i, table in enumerate(self.tables))], 1)
        pairs = (t @ t.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, pairs], -1))


class TabTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(9, 16), nn.Parameter(0.1 * torch.randn(4, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64 + 12, CLASSES)

    def forward(self, features, categories):
        return self.head(torch.cat([self.body(self.embed(categories) + self.place).flatten(1), features], -1))


class Translator(nn.Module):
    """torch.nn.Transformer with sinusoidal positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 16), nn.Linear(16, WORDS)
        self.body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
        angle = torch.arange(TOKENS)[:, None] / 100 ** (torch.arange(8) / 8)
        self.register_buffer("place", torch.cat([angle.sin(), angle.cos()], -1))
        self.register_buffer("future", torch.triu(torch.ones(TOKENS, TOKENS), 1).bool())

    def forward(self, input_ids, decoder_input_ids):
        a, b = (self.embed(ids) * 4 + self.place for ids in (input_ids, decoder_input_ids))
        return self.head(self.body(a, b, tgt_mask=self.future))


class PointNet(nn.Module):
    """Points with their nearest neighbours (a DGCNN layer), pooled."""

    def __init__(self):
        super().__init__()
        self.edge, self.head = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU()), nn.Linear(16, CLASSES)

    def forward(self, points):
        n, k = points.shape[0], 4
        near = (points[:, :, None] - points[:, None]).square().sum(-1).topk(k, largest=False).indices
        other = points.gather(1, near.flatten(1)[..., None].expand(n, 16 * k, 3)).view(n, 16, k, 3)
        here = points[:, :, None].expand_as(other)
        return self.head(self.edge(torch.cat([here, other - here], -1)).amax(2).mean(1))


class SpatialTransformer(nn.Module):
    """An image resampled by a learned affine map."""

    def __init__(self):
        super().__init__()
        self.find = nn.Sequential(nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6))
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, CLASSES))
        self.find[-1].weight.data.mul_(0.1)
        self.find[-1].bias.data.copy_(torch.tensor([1.02, 0.03, 0.01, -0.02, 0.97, 0.02]))

    def forward(self, gray):
        grid = F.affine_grid(self.find(gray).view(-1, 2, 3), [gray.shape[0], 1, 16, 16], align_corners=False)
        return self.body(F.grid_sample(gray, grid, align_corners=False))


class Capsules(nn.Module):
    """Routing by agreement (Sabour et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.conv, self.weight = nn.Conv2d(1, 16, 7, 3), nn.Parameter(0.3 * torch.randn(CLASSES, 64, 6, 4))

    @staticmethod
    def squash(s):
        square = s.square().sum(-1, keepdim=True)
        return s * square / (1 + square) / (square + 1e-8).sqrt()

    def forward(self, gray):
        u = self.squash(self.conv(gray).flatten(1).view(-1, 64, 4))
        votes = torch.einsum("kiec,bic->bkie", self.weight, u)
        b = torch.zeros_like(votes[..., 0])
        for _ in range(2):
            v = self.squash((b.softmax(1)[..., None] * votes).sum(2))
            b = b + (votes * v[:, :, None]).sum(-1)
        return v.norm(dim=-1) * 5


class Flow(nn.Module):
    """A normalizing flow of affine couplings (RealNVP): the negative log likelihood."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList([nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12)) for _ in range(3)])

    def forward(self, features):
        a, b = features.chunk(2, -1)
        log_det = 0
        for net in self.nets:
            shift, scale = net(a).chunk(2, -1)
            a, b, log_det = b * scale.tanh().exp() + shift, a, log_det + scale.tanh().sum(-1)
        z = torch.cat([a, b], -1)
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1) + log_det).mean()


class MixtureDensity(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 3 * 5))

    def forward(self, features, target):
        mean, log_deviation, weight = self.body(features).chunk(3, -1)
        apart = (target[:, :1] - mean) / log_deviation.exp()
        return -torch.logsumexp(weight.log_softmax(-1) - apart.square() / 2 - log_deviation, -1).mean()


class Siamese(nn.Module):
    """A contrastive loss of pairs (InfoNCE) with a learned temperature."""

    def __init__(self):
        super().__init__()
        self.body, self.scale = nn.Sequential(nn.Linear(12, 16), nn.Mish(), nn.Linear(16, 8)), nn.Parameter(torch.tensor(1.0))

    def forward(self, features, other):
        a, b = F.normalize(self.body(features), dim=-1), F.normalize(self.body(other), dim=-1)
        return F.cross_entropy(a @ b.T * self.scale.exp(), torch.arange(features.shape[0]))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, features):
        return self.c(torch.sin(5 * self.b(torch.sin(5 * self.a(features)))))


class FourierOperator(nn.Module):
    """A Fourier neural operator: a product with a weight for each frequency."""

    def __init__(self):
        super().__init__()
        self.lift, self.skip, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.weight = nn.Parameter(0.2 * torch.randn(2, 8, 8, 6))

    def forward(self, series):
        h = self.lift(series)
        f = torch.view_as_real(torch.fft.rfft(h, dim=1)[:, :6])
        re, im = f[..., 0], f[..., 1]
        a, b = self.weight
        re, im = (torch.einsum("bkc,cdk->bkd", x, y) for x, y in ((re, a), (im, b)))
        y = torch.fft.irfft(torch.view_as_complex(torch.stack([re, im], -1).contiguous()), n=24, dim=1)
        return self.head(F.gelu(y + self.skip(h)).mean(1))


for kind, label, labels, rates in (
        (CharLSTM, "lstm_characters", "words", "normal"), (Tagger, "lstm_tagger", "words", "normal"),
        (GRUClassifier, "gru", "class", "normal"), (SequenceToSequence, "gru_attention", "words", "normal"),
        (GCN, "gcn", "nodes", "normal"), (GAT, "gat", "nodes", "normal"), (GIN, "gin", "class", "normal"),
        (VAE, "vae", "loss", "normal"), (VQVAE, "vq_vae", "loss", "normal"), (UNet, "unet", "mask", "normal"),
        (BilinearUNet, "unet_bilinear", "mask", "normal"), (DiffusionUNet, "diffusion_unet", "loss", "normal"),
        (Generator, "dcgan", "loss", "normal"), (TCN, "tcn", "class", "normal"), (WaveNet, "wavenet", "class", "normal"),
        (DLRM, "dlrm", "class", "normal"), (TabTransformer, "tab_transformer", "class", "normal"),
        (Translator, "nn_transformer", "words", "normal"), (PointNet, "dgcnn", "class", "normal"),
        (SpatialTransformer, "spatial_transformer", "class", "careful"), (Capsules, "capsules", "class", "normal"),
        (Flow, "flow", "loss", "normal"), (MixtureDensity, "mixture_density", "loss", "normal"),
        (Siamese, "siamese", "loss", "normal"),
        (Siren, "siren", "class", "normal"), (FourierOperator, "fourier_operator", "class", "normal")):
    model(labels, rates, label)(kind)
