#!/usr/bin/env python3
"""Modules that exporters of PyTorch change, and nnaot-export's verdict on each:  exporting.py [MODULE ...]

Needs torch and onnx.  A row of the table is a module and an exporter: whether it is exported, and the notes and errors.
The exit status is 1 if one of them differs from the module's `by_dynamo` and `by_torchscript`: a part of the error, or of a
note; "" is an export without a note.
"""

import collections
import copy
import pathlib
import sys
import tempfile
import types
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import onnx  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from nnaot_export import ExportError, ExportWarning, export  # noqa: E402

Pair = collections.namedtuple("Pair", "first second")


class Base(nn.Module):
    by_dynamo = by_torchscript = ""
    inputs, outputs = ["x"], ["output"]

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(3, 8), nn.Linear(8, 5)

    def example(self):
        return torch.randn(4, 3)


class Plain(Base):
    """Dropout, BatchNorm, convolution, pooling, recurrence and attention: the file computes as in training."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv1d(4, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Dropout(0.4)
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

    def example(self):
        return torch.randn(3, 4, 8)

    def forward(self, x):
        h = self.drop(F.max_pool1d(self.norm(self.conv(x)), 2))
        return self.head(self.layer(self.rnn(h)[0]))


class Branch(Base):
    by_dynamo = "cannot export this module: Could not guard on data-dependent"
    by_torchscript = "of other values differs from the module's by"

    def forward(self, x):
        h = self.inner(x)
        return self.head(torch.tanh(h) if h.sum() > 0 else h)


class Length(Base):
    by_dynamo, by_torchscript = "the batch is not symbolic: dimension 0 of 'x' is 4", "of 5 rows differs from the module's by"

    def forward(self, x):
        return self.head(self.inner(x)) * len(x)


class Rows(Base):
    by_dynamo = "the batch is not symbolic"
    by_torchscript = "the module takes no other number of rows than 4: compile with --batch 4"

    def forward(self, x):
        return self.head(self.inner(x)).view(4, 5)


class Smoothing(Base):
    by_dynamo, by_torchscript = "'output' of the example differs", "ONNX does not support label_smoothing"
    inputs = ["x", "y"]

    def example(self):
        return torch.randn(4, 3), torch.tensor([0, 1, 2, 3])

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.inner(x)), y, label_smoothing=0.1)


class Average(Base):
    by_dynamo = by_torchscript = "forward() changes average: training with the file leaves them as they are"

    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return self.head(h + self.average)


class Changes(Base):
    """In-place changes without a gradient are exported as sums, x + (new - x).detach()."""

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            h.clamp_(-0.3, 0.3)
            h[h < 0] = 0.1
        h.data.mul_(2)
        return self.head(h)


class ChangesPart(Base):
    by_dynamo = by_torchscript = "a file cannot say that a part of a tensor changes without its gradient: write torch.where"

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            h[:, :2].clamp_(-0.3, 0.3)
        return self.head(h)


class Forgets(Base):
    by_dynamo = by_torchscript = "loses its history in place: write x = x.detach()"

    def forward(self, x):
        h = self.inner(x)
        h.detach_()
        return self.head(h)


class Clips(Base):
    by_dynamo = by_torchscript = "forward() changes a parameter, which training with a file cannot do"

    def forward(self, x):
        self.inner.weight.data.clamp_(-0.1, 0.1)
        return self.head(self.inner(x))


class Teacher(Base):
    by_dynamo = by_torchscript = "forward() changes teacher.weight, teacher.bias: training with the file leaves them as they are"

    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(3, 8).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for p, q in zip(self.teacher.parameters(), self.inner.parameters()):
                p.mul_(0.9).add_(q, alpha=0.1)
        return self.head(self.inner(x) - self.teacher(x))


class Equal(Base):
    """A teacher with its student's initial values: the first average changes no value."""
    by_dynamo = by_torchscript = "forward() changes teacher.weight, teacher.bias: training with the file leaves them as they are"

    def __init__(self):
        super().__init__()
        self.teacher = copy.deepcopy(self.inner).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for p, q in zip(self.teacher.parameters(), self.inner.parameters()):
                p.lerp_(q, 0.1)
        return self.head(self.inner(x) - self.teacher(x))


class Assigned(Equal):
    by_dynamo = by_torchscript = "forward() gives a parameter other data, which training with a file cannot do"

    def __init__(self):
        super().__init__()
        nn.init.ones_(self.teacher.weight)

    def forward(self, x):
        for p, q in zip(self.teacher.parameters(), self.inner.parameters()):
            p.data = 0.9 * p.data + 0.1 * q.data
        return self.head(self.inner(x) - self.teacher(x))


class Caches(Base):
    """Buffers that the first call computes: the file and the module have their contents."""
    by_dynamo, by_torchscript = "", "the model is right for the example alone if other data take another way here"

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.zeros(1, 1), persistent=False)
        self.register_buffer("scale", None, persistent=False)
        self.scaled = False

    def forward(self, x):
        if not self.scaled:
            self.scale, self.scaled = torch.arange(1.0, 9.0), True
        if self.places.shape[-1] != 8:
            self.places = torch.arange(8.0)[None]
        return self.head(self.inner(x) * self.scale + self.places)


class Volume(Base):
    """Convolutions of volumes, with a bias and without one."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv3d(2, 3, 3, bias=False), nn.Conv3d(3, 8, 2)

    def example(self):
        return torch.randn(3, 2, 5, 5, 5)

    def forward(self, x):
        return self.head(self.second(self.first(x)).amax((2, 3, 4)))


class SameType(Base):
    """A part converted to the type that it has, as in the router of Switch Transformers."""
    by_dynamo = "dynamo cannot export this module: Cannot swap"

    def forward(self, x):
        self.inner = self.inner.to(torch.float32)
        return self.head(self.inner(x))


class Packed(Base):
    """Texts in one row, numbered by jumps of their positions, as transformers' masks do: differences, and sums of truth values."""
    inputs = ["x", "positions"]

    def example(self):
        return torch.randn(2, 6, 3), torch.tensor([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3]])

    def forward(self, x, positions):
        text = (torch.diff(positions, prepend=positions[:, :1] - 1) != 1).cumsum(-1)
        odd = torch.diff(positions > 1, n=2, dim=-1).float().sum(-1)[:, None, None]
        hidden = (text[:, :, None] != text[:, None]).float() * -1e9
        h = self.inner(x)
        return self.head((h @ h.transpose(1, 2) + hidden).softmax(-1) @ h) + odd


class Configured(Base):
    """Settings of a part, as of transformers' models: with them, it returns a cache, and sorts rows by values."""

    def __init__(self):
        super().__init__()
        self.head.config = types.SimpleNamespace(use_cache=True, _experts_implementation_internal="grouped_mm")

    def forward(self, x):
        config, h = self.head.config, self.inner(x)
        if config._experts_implementation_internal != "batched_mm":
            h = torch.cat([h[rows] for rows in (h[:, 0] > 0, h[:, 0] <= 0)])
        return (self.head(h), h) if config.use_cache else self.head(h)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi, self.wo = nn.Linear(8, 6, bias=False), nn.Linear(6, 8, bias=False)
        self.dropout, self.act = nn.Dropout(0.0), nn.ReLU()

    def forward(self, x):
        return self.wo(self.dropout(self.act(self.wi(x))))


class SwitchTransformersExperts(nn.ModuleDict):
    """As in transformers: a loop over the experts that rows choose."""

    num_experts = 3

    def __init__(self):
        super().__init__({f"expert_{i}": Expert() for i in range(self.num_experts)})

    def forward(self, x, chosen, weights):
        out, mask = torch.zeros_like(x), chosen.permute(2, 1, 0)
        for expert in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            place, row = torch.where(mask[expert].squeeze(0))
            out.index_add_(0, row, self[f"expert_{expert[0]}"](x[None, row].reshape(-1, 8)) * weights[row, place, None])
        return out


class Switch(Base):
    """At most two rows for each expert."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(8, 3), SwitchTransformersExperts()

    def example(self):
        return torch.randn(5, 3)

    def forward(self, x):
        h = self.inner(x)
        p = self.router(h).softmax(-1)
        one = F.one_hot(p.argmax(-1), 3)
        one = one * (one.cumsum(0) <= 2)
        return self.head(self.experts(h, one.unsqueeze(1), p.max(-1).values.unsqueeze(-1)))


class Windows(Base):
    """Overlapping windows along a dimension that is counted from the end."""

    def example(self):
        return torch.randn(4, 7, 3, 2)

    def forward(self, x):
        return self.head(self.inner(x.unfold(dimension=-3, size=3, step=2).sum(-2))).sum(1)


class Bag(Base):
    """Sums of a table's rows: by TorchScript a Loop, in whose body names change, too."""

    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(7, 3, mode="sum")

    def example(self):
        return torch.randint(0, 7, (4, 2))

    def forward(self, x):
        return self.head(self.inner(self.table(x)))


class Biased(Base):
    """Attention of windows, in five dimensions, and attention with a learned bias of the scores."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2, 6, 6))

    def example(self):
        return torch.randn(4, 6, 3)

    def forward(self, x):
        h = self.inner(x).view(-1, 6, 2, 4).transpose(1, 2)
        h = F.scaled_dot_product_attention(h, h, h, self.bias[None]).transpose(1, 2).reshape(-1, 6, 8)
        w = h.view(-1, 3, 2, 2, 4).transpose(2, 3)
        w = F.scaled_dot_product_attention(w, w, w).transpose(2, 3).reshape(-1, 6, 8)
        return self.head(w + F.scaled_dot_product_attention(h, h, h))


class Sums(Base):
    """Rows added to others, several to one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.tensor([0, 1, 1, 0]))

    def example(self):
        return torch.randn(4, 4, 3)

    def forward(self, x):
        h = self.inner(x)
        other = torch.index_add(h, 2, self.rows, h[..., :4], alpha=2)
        return self.head(h[:, :2].index_add(1, self.rows, h) + other[:, :2])


class Lazy(Base):
    by_dynamo = by_torchscript = "no shape yet; run the module on an example before it is exported"

    def __init__(self):
        super().__init__()
        self.norm = nn.LazyBatchNorm1d()

    def forward(self, x):
        return self.head(self.norm(self.inner(x)))


class Hooks(Base):
    by_dynamo = by_torchscript = "hooks of gradients are not in the file: "

    def __init__(self):
        super().__init__()
        self.inner.weight.register_hook(lambda grad: 2 * grad)

    def forward(self, x):
        h = self.inner(x)
        h.register_hook(lambda grad: 2 * grad)
        return self.head(h)


class Condition(Base):
    by_dynamo, by_torchscript = "gradients of the file of dynamo have not been compared", "cannot export this module"

    def forward(self, x):
        return self.head(torch.cond(x.sum() > 0, lambda h: h * 2, lambda h: h * 3, (self.inner(x),)))


class State(Base):
    by_dynamo = by_torchscript = "have not been compared with the module's: the module gives other results each time"
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.head(self.inner(x)) * self.calls


class Averages(Base):
    by_dynamo = "cannot export this module"
    by_torchscript = "running statistics of norm are averages of all steps (momentum=None)"

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8, momentum=None)

    def forward(self, x):
        return self.head(self.norm(self.inner(x)))


class Frozen(Base):
    """A normalization that its module's own train() keeps in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(self.inner(x)))


class Hidden(Base):
    """Attention with dropout and a mask that hides whole rows."""
    inputs = ["x", "mask"]

    def example(self):
        return torch.randn(4, 6, 3), torch.tensor([[1, 1, 1, 0, 0, 0], [0] * 6, [1] * 6, [0, 0, 1, 1, 0, 1]]).bool()

    def forward(self, x, mask):
        h = self.inner(x)[:, None]
        return self.head(F.scaled_dot_product_attention(h, h, h, mask[:, None, None], dropout_p=0.3)[:, 0])


class ByFrequency(Base):
    by_dynamo = by_torchscript = "scale_grad_by_freq of table is not supported"

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3, scale_grad_by_freq=True)

    def example(self):
        return torch.randint(0, 7, (4, 2))

    def forward(self, x):
        return self.head(self.inner(self.table(x)))


class Number(Base):
    """A weight read as a number becomes a constant of the file."""
    by_dynamo, by_torchscript = "cannot export this module", "the example with other weights differs from the module's"

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.head(self.inner(x)) * float(self.gain)


class Twice(Base):
    """One tensor is the example of two inputs."""
    inputs = ["a", "b"]

    def example(self):
        x = torch.randn(4, 3)
        return x, x

    def forward(self, a, b):
        return self.head(self.inner(a)) + self.head(self.inner(b) * 2)


class Between(Base):
    """Dropout between layers, which torch.export loses."""
    by_dynamo, by_torchscript = "differs from the module's", "cannot export this module"

    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 8, num_layers=2, dropout=0.5, batch_first=True)

    def example(self):
        return torch.randn(4, 6, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


class SwitchedOff(Base):
    """The loss of a generator through a discriminator that it does not train, and the discriminator's own loss."""
    by_dynamo = by_torchscript = "forward() changes requires_grad of a parameter, which a file cannot say"

    def forward(self, x):
        h = self.inner(x)
        self.head.requires_grad_(False)
        of_inner = self.head(h).mean()
        self.head.requires_grad_(True)
        return of_inner + self.head(h.detach()).square().mean()


class InsideFunction(Base):
    """An in-place change that gets a gradient in exporters' programs."""
    by_dynamo = by_torchscript = "the gradient of 'inner.weight' differs from the module's by"

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            F.relu(h, inplace=True)
        return self.head(h)


class Together(Base):
    """Tensors of a list, changed by one call."""
    by_dynamo, by_torchscript = "cannot export this module", "the gradient of 'inner.weight' differs from the module's by"

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            torch._foreach_clamp_max_([h], 0.3)
        return self.head(h)


class Variance(Base):
    """A loss that clamps a predicted variance to its minimum, without a gradient."""
    inputs = ["x", "y"]

    def example(self):
        return torch.randn(4, 3), torch.randn(4, 5)

    def forward(self, x, y):
        h = self.inner(x)
        return F.gaussian_nll_loss(self.head(h), y, h[:, :5].square(), full=True, eps=0.1)


class Deviations(Base):
    """Deviations whose operator in torch.export's program has no gradient; and one that is detached."""

    def forward(self, x):
        h = self.inner(x)
        return self.head((h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True).detach() + h.var(-1, keepdim=True)))


class Ceiling(Base):
    """A window that reaches beyond its data."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 5)

    def forward(self, x):
        return self.head(F.max_pool1d(self.inner(x)[:, None], 3, 2, padding=1, ceil_mode=True))


class NamedAsInput(Base):
    by_dynamo = by_torchscript = "the parameter or buffer 'mask' is called 'module.mask': an input or output has its name"
    inputs = ["x", "mask"]

    def __init__(self):
        super().__init__()
        self.mask = nn.Parameter(torch.randn(8))

    def example(self):
        return torch.randn(4, 3), torch.randn(4, 1)

    def forward(self, x, mask):
        return self.head(self.inner(x) * self.mask) * mask


class Sparse(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 3, sparse=True)

    def example(self):
        return torch.randint(0, 7, (4, 2))

    def forward(self, x):
        return self.head(self.inner(self.table(x)))


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class OwnGradient(Base):
    by_dynamo = by_torchscript = "the gradients of Round are the module's own"

    def forward(self, x):
        return self.head(Round.apply(self.inner(x)))


class OwnAndStopped(Base):
    """Weights unaffected by any Function are compared: here, the exporters lose a gradient."""
    by_dynamo = by_torchscript = "the gradient of 'inner.weight' differs from the module's by"

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            F.relu(h, inplace=True)
        return self.head(h) + Round.apply(self.head.bias)


class Names(Base):
    """An input that is an output, one with the name of an inner value, parts of a namedtuple, and a result returned twice."""
    inputs, outputs = ["linear", "mask", "xs_0", "xs_1"], ["mask_out", "logits_first", "logits_second", "again"]
    by_dynamo = by_torchscript = "the output 'mask' is called 'mask_out': an input has its name"

    def example(self):
        return {"linear": torch.randn(4, 3), "mask": torch.ones(4, 1), "xs": [torch.randn(4, 3), torch.randn(4, 3)]}

    def forward(self, linear, mask, xs, scale=2.0):
        h = self.inner(linear) + self.inner(xs[0]) * scale - xs[1].sum()
        y = self.head(h)
        return {"mask": mask, "logits": Pair(y, h), "again": y}


class Rest(Base):
    inputs, outputs = ["xs_0", "xs_1", "pad"], ["output_0", "output_1"]

    def example(self):
        return {"xs": (torch.randn(4, 3), torch.randn(4, 3)), "pad": torch.ones(4, 1)}

    def forward(self, *xs, **more):
        return self.head(sum(self.inner(x) for x in xs)) * more["pad"], xs[0] * 2


class Missing(Base):
    by_dynamo = by_torchscript = "the example does not fit forward(x, mask): missing a required argument: 'mask'"

    def forward(self, x, mask):
        return self.head(self.inner(x)) * mask


class Wrapped(nn.DataParallel):
    by_dynamo, by_torchscript, inputs, outputs = "", "", ["input"], ["output"]

    def __init__(self):
        super().__init__(nn.Linear(3, 5))

    def example(self):
        return torch.randn(4, 3)


MODULES = [Plain, Branch, Length, Rows, Smoothing, Average, Averages, Changes, ChangesPart, Forgets, Clips, Teacher,
           Equal, Assigned, Caches, Volume, SameType, Packed, Configured, Switch, Windows, Bag, Biased, Sums, Lazy, Hooks,
           Condition, State, Number, Twice, Between, SwitchedOff, InsideFunction, Together, Variance, Deviations,
           Ceiling, NamedAsInput, Sparse, Frozen, Hidden, ByFrequency, OwnGradient, OwnAndStopped, Names, Rest,
           Missing, Wrapped]


def settings_of(module):
    return [dict(vars(part.config)) for part in module.modules() if hasattr(part, "config")]


def exported(module, exporter, path):
    """Returns nnaot-export's messages about the module, in lines."""
    before = [None if nn.parameter.is_lazy(v) else v.clone() for v in module.state_dict().values()]
    settings = settings_of(module)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            export(module, module.example(), path, exporters=(exporter,))
        except ExportError as e:
            return f"error: {e}"
    if not all(map(torch.equal, before, module.state_dict().values())):
        return "error: the module has other parameters or buffers than before"
    if settings_of(module) != settings:
        return "error: the module has other settings than before"
    graph = onnx.load(path).graph
    onnx.checker.check_model(path)
    names = [[v.name for v in graph.input], [v.name for v in graph.output]]
    if names != [module.inputs, module.outputs]:
        return f"error: its inputs and outputs are {names}"
    return "\n".join(f"note: {w.message}" for w in warned if issubclass(w.category, ExportWarning))


def main():
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in [kind for kind in MODULES if not sys.argv[1:] or kind.__name__ in sys.argv[1:]]:
            for exporter in ("dynamo", "torchscript"):
                torch.manual_seed(3)
                module = kind()
                want, said = getattr(module, f"by_{exporter}"), exported(module, exporter, f"{folder}/{kind.__name__}.onnx")
                right = want in said and bool(want) == bool(said)
                wrong += not right
                print(f"{kind.__name__:12} {exporter:12} {'' if right else 'WRONG '}{said or 'exported'}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
