"""What users give nnaot-export, by a function each."""

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
