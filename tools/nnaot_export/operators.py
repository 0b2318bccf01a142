"""Operators of onnx's evaluator that PyTorch computes, since numpy would take minutes or has a fault, and those that draw."""

import numpy as np
import torch
from onnx.reference.op_run import OpRun
from torch.nn import functional as F

from .random import normal, uniform


def tensor(v):
    return torch.from_numpy(np.ascontiguousarray(v))


class Dropout(OpRun):
    op_domain = ""

    def _run(self, x, ratio=None, training=None, seed=None, **_):
        ratio = 0.5 if ratio is None else float(ratio)
        keep = uniform(x.shape) < 1 - ratio if training is not None and training else np.ones(x.shape, bool)
        y = x * keep / (1 - ratio) if training is not None and training else x
        return (y.astype(x.dtype), keep)[:len(self.onnx_node.output)]


class RandomUniformLike(OpRun):
    op_domain = ""

    def _run(self, x, high=1.0, low=0.0, **_):
        return ((uniform(x.shape) * (high - low) + low).astype(x.dtype),)


class RandomNormalLike(OpRun):
    op_domain = ""

    def _run(self, x, mean=0.0, scale=1.0, **_):
        return ((normal(x.shape) * scale + mean).astype(x.dtype),)


class RandomUniform(OpRun):
    op_domain = ""

    def _run(self, high=1.0, low=0.0, shape=(), **_):
        return ((uniform(shape) * (high - low) + low).astype(np.float32),)


class RandomNormal(OpRun):
    op_domain = ""

    def _run(self, mean=0.0, scale=1.0, shape=(), **_):
        return ((normal(shape) * scale + mean).astype(np.float32),)


class Bernoulli(OpRun):
    op_domain = ""

    def _run(self, p, **_):
        return ((uniform(p.shape) < p).astype(p.dtype),)


class BatchNormalization(OpRun):
    op_domain = ""

    def _run(self, x, scale, bias, mean, var, epsilon=1e-5, momentum=0.9, training_mode=0, **_):
        held = [tensor(v).clone() for v in (mean, var)]
        y = F.batch_norm(tensor(x), *held, tensor(scale), tensor(bias), bool(training_mode), 1 - momentum, epsilon)
        return tuple(v.numpy() for v in (y, *held)[:len(self.onnx_node.output)])


class Conv(OpRun):
    op_domain = ""

    def _run(self, x, w, b=None, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
        n = x.ndim - 2
        strides, dilations = strides or [1] * n, dilations or [1] * n
        x, w = tensor(x), tensor(w)
        y = F.conv3d if n == 3 else F.conv2d if n == 2 else F.conv1d
        around = pads_of(auto_pad, pads, x.shape[2:], w.shape[2:], strides, dilations)
        return (y(F.pad(x, of_torch(around)), w, None if b is None else tensor(b), strides, 0, dilations, group).numpy(),)


class MaxPool(OpRun):
    op_domain = ""

    def _run(self, x, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape=None, pads=None, storage_order=0, strides=None):
        n = x.ndim - 2
        strides, dilations = strides or [1] * n, dilations or [1] * n
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError("MaxPool with indices")
        lengths = x.shape[2:]
        pads = pads_of(auto_pad, pads, lengths, kernel_shape, strides, dilations)
        counts = [slice(None)] * n
        for i in range(n if ceil_mode else 0):  # windows that start before the end of the data
            extent, end = (kernel_shape[i] - 1) * dilations[i] + 1, lengths[i] + pads[i]
            count = min(-(-(end + pads[n + i] - extent) // strides[i]), (end - 1) // strides[i]) + 1
            pads[n + i] = max(pads[n + i], (count - 1) * strides[i] + extent - end)
            counts[i] = slice(count)
        y = F.max_pool3d if n == 3 else F.max_pool2d if n == 2 else F.max_pool1d
        y = y(F.pad(tensor(x), of_torch(pads), value=-torch.inf), kernel_shape, strides, 0, dilations)
        return (y[(..., *counts)].numpy(),)


class GatherElements(OpRun):
    op_domain = ""

    def _run(self, x, indices, axis=0, **_):
        axis %= x.ndim
        part = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
        return (np.take_along_axis(x[part], np.where(indices < 0, indices + x.shape[axis], indices), axis),)


class Sigmoid(OpRun):
    op_domain = ""

    def _run(self, x, **_):
        return (torch.sigmoid(tensor(x)).numpy(),)  # below -88, zero


class LogSoftmax(OpRun):
    op_domain = ""

    def _run(self, x, axis=-1, **_):
        return (F.log_softmax(tensor(x), axis).numpy(),)


class SoftmaxCrossEntropyLoss(OpRun):
    op_domain = ""

    def _run(self, x, labels, weight=None, ignore_index=None, reduction="mean", **_):
        x, weight = tensor(x), None if weight is None else tensor(weight)
        reduction = reduction.decode() if isinstance(reduction, bytes) else reduction
        loss = F.cross_entropy(x, tensor(labels), weight, ignore_index=-2 ** 62 if ignore_index is None else ignore_index,
                               reduction=reduction)
        return (loss.numpy(), F.log_softmax(x, 1).numpy())[:len(self.onnx_node.output)]


class Resize(OpRun):
    op_domain = ""

    def _run(self, x, roi=None, scales=None, sizes=None, mode="nearest", coordinate_transformation_mode="half_pixel",
             nearest_mode="round_prefer_floor", cubic_coeff_a=-0.75, antialias=0, axes=None, **_):
        how = coordinate_transformation_mode
        known = (mode == "nearest" and how == "asymmetric" and nearest_mode == "floor"
                    or mode != "nearest" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"))
        if not known or axes is not None or antialias or mode == "cubic" and (x.ndim != 4 or cubic_coeff_a != -0.75):
            raise NotImplementedError(f"Resize: {mode}, {how}")
        spatial = ["linear", "bilinear", "trilinear"][x.ndim - 3] if mode == "linear" else {"cubic": "bicubic"}.get(mode, mode)
        corners = {} if mode == "nearest" else {"align_corners": how == "align_corners"}
        if sizes is not None and len(sizes):
            return (F.interpolate(tensor(x), [int(n) for n in sizes[2:]], mode=spatial, **corners).numpy(),)
        factors = [float(f) for f in scales[2:]]
        return (F.interpolate(tensor(x), scale_factor=factors, mode=spatial, recompute_scale_factor=False, **corners).numpy(),)


def pads_of(auto_pad, pads, lengths, kernel, strides, dilations):
    """Starts of all dimensions, then ends."""
    n = len(kernel)
    pads = list(pads or [0] * (2 * n))
    for i in range(n if auto_pad in ("SAME_UPPER", "SAME_LOWER") else 0):
        more = max(0, (-(-lengths[i] // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - lengths[i])
        pads[i] = more // 2 if auto_pad == "SAME_UPPER" else more - more // 2
        pads[n + i] = more - pads[i]
    return pads


def of_torch(pads):
    """As F.pad takes them: last dimension first, start and end."""
    n = len(pads) // 2
    return [side for i in reversed(range(n)) for side in (pads[i], pads[n + i])]


REPLACED = (Bernoulli, Dropout, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike, BatchNormalization, Conv,
            GatherElements, LogSoftmax, MaxPool, Resize, Sigmoid, SoftmaxCrossEntropyLoss)
