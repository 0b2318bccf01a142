"""Operators of images with random attributes, compared with ONNX's reference evaluator, or with a definition in numpy.

    BUILD=build python tests/eval/image_ops.py [--count N] [--seed S] [OPTIONS OF nnaot-eval ...]

N random nodes of each operator become cases as those of the backend suite, and nnaot-eval runs them. The results are those
of onnx.reference, except for operators that it computes for some attributes only: these have a definition here.  Exit
status 1 if a case is not passed; 77, which ctest takes as skipped, without the onnx package.
"""
import sys

try:
    import numpy
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

from random_cases import arguments, run


class Case:
    """A node with its operands: inputs by name, and initializers that are settings."""

    def __init__(self, op, opset=18, **attributes):
        self.op, self.opset, self.attributes = op, opset, attributes
        self.operands, self.inputs, self.settings = [], {}, {}
        self.expected = None  # the result; None: that of onnx.reference

    def input(self, name, array):
        self.operands.append(name)
        self.inputs[name] = array
        return self

    def setting(self, name, array):
        self.operands.append(name if array is not None else "")
        if array is not None:
            self.settings[name] = array
        return self

    def model(self):
        node = helper.make_node(self.op, self.operands, ["y"], name=self.op, **self.attributes)
        inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                  for k, v in self.inputs.items()]
        kind = helper.np_dtype_to_tensor_dtype(next(iter(self.inputs.values())).dtype)
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, None)],
                                  [numpy_helper.from_array(v, k) for k, v in self.settings.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def numbers(r, *shape):
    return numpy.array([r.uniform(-1, 1) for _ in range(int(numpy.prod(shape)))], numpy.float32).reshape(shape)


def transposed_convolution(x, w, b, strides, dilations, group, start, length):
    """Every element of x adds the kernel times its value at its own place; the result is a part of the sums."""
    n, spatial = x.ndim - 2, numpy.ndindex(*w.shape[2:])
    whole = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations)]
    m, per = w.shape[1], w.shape[0] // group
    sums = numpy.zeros((x.shape[0], m * group, *(max(e, s + k) for e, s, k in zip(whole, start, length))))
    for r in spatial:
        for p in numpy.ndindex(*x.shape[2:]):
            at = tuple(p[i] * strides[i] + r[i] * dilations[i] for i in range(n))
            for c in range(w.shape[0]):
                first = c // per * m
                sums[(slice(None), slice(first, first + m), *at)] += numpy.outer(
                    x[(slice(None), c, *p)].astype(float), w[(c, slice(None), *r)])
    part = sums[(slice(None), slice(None), *(slice(s, s + k) for s, k in zip(start, length)))]
    return (part + (0 if b is None else b.reshape(-1, *[1] * n))).astype(numpy.float32)


def conv_transpose(r):
    n, group = r.randint(1, 3), r.choice([1, 1, 2, 3])
    c, m = group * r.randint(1, 2), r.randint(1, 3)
    kernel = [r.randint(1, 4) for _ in range(n)]
    size = [r.randint(1, 4) for _ in range(n)]
    a = {"strides": [r.randint(1, 3) for _ in range(n)], "dilations": [r.randint(1, 2) for _ in range(n)], "group": group}
    whole = [(i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(size, a["strides"], kernel, a["dilations"])]
    form = r.choice(["pads", "pads", "auto_pad", "output_shape"])
    extra = [r.randrange(max(s, d)) if form == "pads" else 0 for s, d in zip(a["strides"], a["dilations"])]
    low, high = ([r.randint(0, (w - 1) // 2) for w in whole] for _ in range(2))
    upper = False
    if form == "pads":
        a |= {"pads": low + high, "output_padding": extra}
        length = [w + e - i - j for w, e, i, j in zip(whole, extra, low, high)]
    elif form == "auto_pad":
        a["auto_pad"] = r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        upper = a["auto_pad"] == "SAME_UPPER"
        length = whole if a["auto_pad"] == "VALID" else [i * s for i, s in zip(size, a["strides"])]
    else:
        length = a["output_shape"] = [r.randint(max(1, w - 3), w + 3) for w in whole]
    if form != "pads":
        total = [max(0, w - k) for w, k in zip(whole, length)]
        low = [t // 2 if upper else t - t // 2 for t in total]
    case = Case("ConvTranspose", r.choice([1, 11, 22]), **a)
    x, w = numbers(r, r.randint(1, 2), c, *size), numbers(r, c, m, *kernel)
    b = numbers(r, group * m) if r.random() < 0.5 else None
    case.input("x", x).input("w", w)
    if b is not None:
        case.input("b", b)
    case.expected = transposed_convolution(x, w, b, a["strides"], a["dilations"], group, low, length)
    return case


def resize(r):
    ndim = r.randint(1, 4)
    shape = [r.randint(1, 6) for _ in range(ndim)]
    opset = r.choice([11, 13, 18, 19])
    mode = r.choice(["nearest", "linear", "cubic"])
    how = r.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"] +
                   ["half_pixel_symmetric"] * (opset >= 19))
    a = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        a["nearest_mode"] = r.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        a["cubic_coeff_a"] = r.choice([-0.75, -0.5])
        a["exclude_outside"] = r.randint(0, 1)
    if how == "tf_crop_and_resize":
        a["extrapolation_value"] = r.choice([0.0, 2.5])
    axes = list(range(ndim))
    if opset >= 18:
        if mode != "nearest":
            a["antialias"] = r.randint(0, 1)
        if r.random() < 0.5:
            axes = sorted(r.sample(axes, r.randint(1, ndim)))
            a["axes"] = axes
    # Of numbers of one sign few sums cancel, so a relative difference is one of rounding.
    case = Case("Resize", opset).input("x", numbers(r, *shape) + 2)
    roi = None
    if how == "tf_crop_and_resize":
        ends = [sorted(r.uniform(-0.2, 1.2) for _ in range(2)) for _ in axes]
        roi = numpy.array([e[0] for e in ends] + [e[1] for e in ends], numpy.float32)
    case.setting("roi", roi if roi is not None or r.random() < 0.5 else numpy.zeros(0, numpy.float32))
    scales = numpy.array([r.choice([0.4, 0.5, 0.75, 1, 1.5, 2, 2.6, 3]) for _ in axes], numpy.float32)
    scales = numpy.maximum(scales, [numpy.float32(1 / shape[i]) for i in axes])
    if r.random() < 0.5:
        case.setting("scales", scales.astype(numpy.float32))
    else:
        case.setting("scales", None)
        case.setting("sizes", numpy.array([max(1, round(float(s) * shape[i])) for s, i in zip(scales, axes)], numpy.int64))
        if opset >= 18:
            a["keep_aspect_ratio_policy"] = r.choice(["stretch", "not_larger", "not_smaller"])
    case.attributes = a
    return case


def grid_sample(r):
    ndim = r.choice([1, 2, 2, 3]) if r.random() < 0.5 else 2
    n, c = r.randint(1, 2), r.randint(1, 3)
    size, out = ([r.randint(1, 5) for _ in range(ndim)] for _ in range(2))
    align = r.randint(0, 1)
    padding = r.choice(["zeros", "border", "reflection"])
    if align and padding == "reflection":
        size = [max(2, k) for k in size]  # the reference divides by the span of one element, which is 0
    mode = r.choice(["nearest", "linear", "cubic"] if ndim < 3 else ["nearest", "linear"])
    case = Case("GridSample", 20, mode=mode, padding_mode=padding, align_corners=align)
    return case.input("x", numbers(r, n, c, *size) + 2).input("grid", numbers(r, n, *out, ndim) * numpy.float32(1.7))


def affine_grid(r):
    ndim, n = r.choice([2, 3]), r.randint(1, 3)
    case = Case("AffineGrid", 20, align_corners=r.randint(0, 1)).input("theta", numbers(r, n, ndim, ndim + 1))
    return case.setting("size", numpy.array([n, 2] + [r.randint(2, 5) for _ in range(ndim)], numpy.int64))


def roi_align(r):
    n, c, regions = r.randint(1, 3), r.randint(1, 3), r.randint(1, 4)
    h, w = r.randint(2, 7), r.randint(2, 7)
    a = dict(output_height=r.randint(1, 3), output_width=r.randint(1, 3), sampling_ratio=r.randint(1, 3),
             spatial_scale=r.choice([1.0, 0.5]), mode=r.choice(["avg", "max"]))
    a["coordinate_transformation_mode"] = r.choice(["half_pixel", "output_half_pixel"])
    case = Case("RoiAlign", r.choice([16, 22]), **a).input("x", numbers(r, n, c, h, w) + 2)
    corners = [(r.uniform(-3, h), r.uniform(-3, h)) for _ in range(regions)]
    boxes = [[x, y, x + r.uniform(0, 9), y + r.uniform(0, 9)] for x, y in corners]
    case.input("rois", numpy.array(boxes, numpy.float32))
    return case.input("image", numpy.array([r.randrange(n) for _ in range(regions)], numpy.int64))


def max_roi_pool(r):
    n, c, regions, h, w = r.randint(1, 3), r.randint(1, 3), r.randint(1, 4), r.randint(1, 7), r.randint(1, 7)
    bins, scale = (r.randint(1, 4), r.randint(1, 4)), r.choice([1.0, 0.5, 0.3])
    x = numbers(r, n, c, h, w)
    rois = numpy.array([[r.randrange(n), *(r.uniform(-4, 14) for _ in range(4))] for _ in range(regions)], numpy.float32)
    y = numpy.zeros((regions, c, *bins), numpy.float32)
    for i, roi in enumerate(rois):
        corner = numpy.float32(scale) * roi[1:]
        corner = numpy.copysign(numpy.floor(abs(corner) + numpy.float32(0.5)), corner)
        parts = []
        for first, last, count, length in ((corner[1], corner[3], bins[0], h), (corner[0], corner[2], bins[1], w)):
            size = max(last - first + 1, numpy.float32(1)) / numpy.float32(count)
            ends = [(numpy.floor(k * size) + first, numpy.ceil((k + 1) * size) + first) for k in numpy.arange(count, dtype="f4")]
            parts.append([slice(*(int(min(max(e, 0), length)) for e in pair)) for pair in ends])
        for p, rows in enumerate(parts[0]):
            for q, columns in enumerate(parts[1]):
                inside = x[int(roi[0]), :, rows, columns].reshape(c, -1)
                y[i, :, p, q] = inside.max(1) if inside.shape[1] else 0
    case = Case("MaxRoiPool", r.choice([1, 22]), pooled_shape=bins, spatial_scale=scale).input("x", x).input("rois", rois)
    case.expected = y
    return case


def sample(x, at):
    """The element of x (c, spatial) at a point, linear between elements, zero outside."""
    total = numpy.zeros(len(x))
    for corner in numpy.ndindex(*[2] * len(at)):
        tap = [int(numpy.floor(p)) + k for p, k in zip(at, corner)]
        if all(0 <= t < length for t, length in zip(tap, x.shape[1:])):
            total += x[(slice(None), *tap)] * numpy.prod([1 - abs(p - t) for p, t in zip(at, tap)])
    return total


def deform_conv(r):
    n, group, own = r.choice([1, 2, 2, 3]), r.randint(1, 2), r.randint(1, 2)
    batch, c, m = r.randint(1, 2), group * own * r.randint(1, 2), group * r.randint(1, 2)
    kernel, size = [r.randint(1, 2) for _ in range(n)], [r.randint(2, 4) for _ in range(n)]
    stride, dilation = [r.randint(1, 2) for _ in range(n)], [r.randint(1, 2) for _ in range(n)]
    low, high = ([r.randint(1, 2) for _ in range(n)] for _ in range(2))
    out = [(s + p + q - (k - 1) * d - 1) // t + 1 for s, p, q, k, d, t in zip(size, low, high, kernel, dilation, stride)]
    k = int(numpy.prod(kernel))
    x, w = numbers(r, batch, c, *size), numbers(r, m, c // group, *kernel)
    offset = 2 * numbers(r, batch, own * k * n, *out)
    bias, mask = (numbers(r, *shape) if r.random() < 0.6 else None for shape in ((m,), (batch, own * k, *out)))
    y = numpy.zeros((batch, m, *out))
    by, weights = offset.reshape(batch, own, k, n, *out), w.reshape(m, c // group, k)
    factors = (numpy.ones((batch, own * k, *out)) if mask is None else mask).reshape(batch, own, k, *out)
    for b, e in numpy.ndindex(batch, k):
        element = numpy.unravel_index(e, kernel)
        for p in numpy.ndindex(*out):
            columns = []
            for o in range(own):
                at = [p[j] * stride[j] - low[j] + element[j] * dilation[j] + float(by[(b, o, e, j, *p)]) for j in range(n)]
                columns.append(sample(x[b, o * c // own:(o + 1) * c // own].astype(float), at) * factors[(b, o, e, *p)])
            columns = numpy.concatenate(columns).reshape(group, -1)
            for channel in range(m):
                y[(b, channel, *p)] += columns[channel // (m // group)] @ weights[channel, :, e]
    case = Case("DeformConv", r.choice([19, 22]), group=group, offset_group=own, strides=stride, dilations=dilation, pads=low + high)
    case.input("x", x).input("w", w).input("offset", offset)
    for name, value in (("bias", bias), ("mask", mask)):
        case.setting(name, None) if value is None else case.input(name, value)
    case.expected = (y + (0 if bias is None else bias.reshape(-1, *[1] * n))).astype(numpy.float32)
    return case


def lp_pool(r):
    n, p = r.choice([1, 2, 2, 3]), r.randint(1, 4)
    size, kernel = [r.randint(3, 6) for _ in range(n)], [r.randint(1, 3) for _ in range(n)]
    stride, dilation = [r.randint(1, 3) for _ in range(n)], [r.choice([1, 1, 2]) for _ in range(n)]
    dilation = [d if (k - 1) * d < s else 1 for d, k, s in zip(dilation, kernel, size)]
    low, high = ([r.randint(0, (k - 1) // 2) for k in kernel] for _ in range(2))
    a = dict(kernel_shape=kernel, strides=stride, dilations=dilation, pads=low + high, p=p)
    x = numbers(r, r.randint(1, 2), r.randint(1, 2), *size)
    powers = numpy.pad(abs(x.astype(float))**p, [(0, 0)] * 2 + list(zip(low, high)))
    out = [(e - (k - 1) * d - 1) // s + 1 for e, k, d, s in zip(powers.shape[2:], kernel, dilation, stride)]
    sums = numpy.zeros((*x.shape[:2], *out))
    for at in numpy.ndindex(*kernel):
        first = [i * d for i, d in zip(at, dilation)]
        sums += powers[(slice(None), slice(None), *(slice(f, f + (o - 1) * s + 1, s) for f, o, s in zip(first, out, stride)))]
    case = Case("LpPool", 18, **a).input("x", x)
    case.expected = (sums**(1 / p)).astype(numpy.float32)
    return case


def global_lp_pool(r):
    p, x = r.randint(1, 4), numbers(r, *[r.randint(1, 4) for _ in range(r.randint(3, 5))])
    case = Case("GlobalLpPool", r.choice([2, 22]), p=p).input("x", x)
    case.expected = ((abs(x.astype(float))**p).sum(tuple(range(2, x.ndim)), keepdims=True)**(1 / p)).astype(numpy.float32)
    return case


def max_unpool(r):
    n = r.randint(1, 3)
    size, kernel, batch = [r.randint(1, 4) for _ in range(n)], [r.randint(1, 3) for _ in range(n)], [r.randint(1, 2), 2]
    stride = [k + r.randint(0, 1) for k in kernel]
    whole = [(i - 1) * s + k for i, s, k in zip(size, stride, kernel)]
    index = numpy.zeros((*batch, *size), numpy.int64)
    for at in numpy.ndindex(*index.shape):
        place = [*at[:2], *(i * s + r.randrange(k) for i, s, k in zip(at[2:], stride, kernel))]
        index[at] = numpy.ravel_multi_index(place, (*batch, *whole))
    case = Case("MaxUnpool", 11, kernel_shape=kernel, strides=stride)
    case.input("x", numbers(r, *index.shape)).input("index", index)
    if r.random() < 0.5:
        case.setting("shape", numpy.array(batch + [w + r.randint(0, 2) for w in whole], numpy.int64))
    return case


def col2im(r):
    n = r.randint(1, 3)
    image, block = [r.randint(3, 6) for _ in range(n)], [r.randint(1, 3) for _ in range(n)]
    a = dict(strides=[r.randint(1, 3) for _ in range(n)], dilations=[1 if b > 2 else r.randint(1, 2) for b in block],
             pads=[r.randint(0, 1) for _ in range(2 * n)])
    positions = [(i + a["pads"][k] + a["pads"][n + k] - (block[k] - 1) * a["dilations"][k] - 1) // a["strides"][k] + 1
                 for k, i in enumerate(image)]
    x = numbers(r, r.randint(1, 2), r.randint(1, 3) * int(numpy.prod(block)), int(numpy.prod(positions))) + 2
    case = Case("Col2Im", 18, **a).input("x", x)
    return case.setting("image", numpy.array(image, numpy.int64)).setting("block", numpy.array(block, numpy.int64))


def center_crop_pad(r):
    shape = [r.randint(1, 6) for _ in range(r.randint(1, 4))]
    axes = r.sample(range(len(shape)), r.randint(1, len(shape)))
    a = {"axes": [i - len(shape) * r.randint(0, 1) for i in axes]} if r.random() < 0.7 else {}
    case = Case("CenterCropPad", 18, **a).input("x", numbers(r, *shape))
    return case.setting("shape", numpy.array([r.randint(1, 8) for _ in (axes if a else shape)], numpy.int64))


def dft(r):
    """In double; one of ten is too long for a single table."""
    inverse, onesided, long = r.random() < 0.5, r.random() < 0.4, r.random() < 0.1
    onesided &= not (long and inverse)
    shape = [r.randint(1, 3) for _ in range(r.randint(1, 3))]
    axis = r.randrange(len(shape))
    shape[axis] = (6006 if onesided else r.choice([4200, 5041])) if long else r.randint(1, 9)
    complex = inverse if onesided else r.random() < 0.5
    length = shape[axis] + r.choice([-6, 0, 9] if long else [-3, -1, 0, 0, 1, 4])
    case = Case("DFT", r.choice([17, 20]), inverse=int(inverse), onesided=int(onesided))
    case.input("x", numbers(r, *shape, 2 if complex else 1).astype(float))
    case.setting("length", numpy.array(max(length, 1), numpy.int64))
    if case.opset == 17:
        case.attributes["axis"] = axis
        return case
    return case.setting("axis", numpy.array(axis, numpy.int64))


OPERATORS = [conv_transpose, resize, grid_sample, affine_grid, roi_align, max_roi_pool, deform_conv, lp_pool, global_lp_pool,
             max_unpool, col2im, center_crop_pad, dft]


def write(case, folder):
    model = case.model()
    y = case.expected
    if y is None:
        (y,) = ReferenceEvaluator(model).run(None, case.inputs)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for i, (name, value) in enumerate(case.inputs.items()):
        (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
    (data / "output_0.pb").write_bytes(numpy_helper.from_array(numpy.asarray(y), "y").SerializeToString())


if __name__ == "__main__":
    sys.exit(run(OPERATORS, write, *arguments(__doc__)))
