"""Modules of users of nnaot-export, each made by a function."""

import torch


class Sum(torch.nn.Module):
    def forward(self, x, table):
        if x.shape[2] != table.shape[1]:
            raise ValueError("x and table differ")


def model():
    return Sum(), (torch.Tensor(6, 4, 3), torch.Tensor(6, 8))


class One(torch.nn.Module):
    def forward(self, x):
        return x


def one():
    return One(), torch.Tensor(2, 3)


class Nested(torch.nn.Module):
    def forward(self, x):
        return {"features": (x, None, x), "logits": x, "aux": {"a": x}}


def nested():
    return Nested(), torch.Tensor(2, 3)


def raises():
    return undefined  # noqa: F821


def no_example():
    return Sum()


def no_module():
    return max, torch.Tensor(2)


class Tower(torch.nn.Module):
    fails = False

    def __init__(self):
        self.embed, self.gain = torch.nn.Embedding(5, 2, padding_idx=1), torch.Tensor(2)
        self.gain.requires_grad = False

    def forward(self, output):
        return {"logits": output, "output": output}


def tower():
    return Tower(), {"output": torch.Tensor(4, 3)}


def falls_back(how=True):
    made = tower()
    made[0].fails = how
    return made


def fixed():
    return falls_back("fixed")


def leaves():
    raise SystemExit("no data")


def missing():
    return Sum(), {"x": torch.Tensor(6, 4, 3)}
