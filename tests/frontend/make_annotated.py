"""Writes inputs/annotated*.onnx, small models with multi-device annotations.

    python3 tests/frontend/make_annotated.py        needs an onnx package with IR version 11, and numpy

The files are committed, so that running the tests needs neither.
"""

from model_parts import model, node, save, value, weight


def mlp():
    """Two products, /a and /c, and an activation, /b, between them."""
    m = model([node("MatMul", "x w", "h", "/a"), node("Relu", "h", "r", "/b"), node("MatMul", "r v", "y", "/c")],
              [value("x", ["N", 6])], "y", [weight("w", 6, 12), weight("v", 12, 6)])
    m.ir_version = 11
    return m


def configure(m, name, n, names=()):
    c = m.configuration.add(name=name, num_devices=n)
    c.device.extend(names)


def cut(axis, *shards):
    """A dimension split into so many shards, or into those of its factors: (size or symbol, shards)."""
    return axis, shards


def annotate(m, which, name, tensors=(), stage=None):
    """The annotations of a node: `tensors` are (name, devices or groups of them, cut, ...)."""
    n = next(n for n in m.graph.node if n.name == which)
    to = n.device_configurations.add(configuration_id=name)
    if stage is not None:
        to.pipeline_stage = stage
    for tensor, devices, *cuts in tensors:
        spec = to.sharding_spec.add(tensor_name=tensor)
        for i, d in enumerate(devices):
            spec.device.append(-1 - i if isinstance(d, list) else d)
            if isinstance(d, list):
                spec.index_to_device_group_map.add(key=-1 - i, value=d)
        for axis, shards in cuts:
            dim = spec.sharded_dim.add(axis=axis)
            for s in shards:
                one = dim.simple_sharding.add(num_shards=s[1] if isinstance(s, tuple) else s)
                if isinstance(s, tuple):
                    setattr(one, "dim_param" if isinstance(s[0], str) else "dim_value", s[0])


def annotated():
    """For four devices as two by two, and for two."""
    m = mlp()
    configure(m, "grid", 4, ["a", "b", "c", "d"])
    configure(m, "pair", 2)
    annotate(m, "/a", "grid", [("x", [[0, 1], [2, 3]], cut(0, 2)), ("w", [[0, 2], [1, 3]], cut(-1, 2)),
                               ("h", [0, 1, 2, 3], cut(0, 2), cut(1, 2))])
    annotate(m, "/c", "grid", [("r", [0, 2, 1, 3], cut(1, 2), cut(0, 2)), ("v", [[0, 2], [1, 3]], cut(0, 2)),
                               ("y", [[0, 1], [2, 3]], cut(0, 2))])
    annotate(m, "/b", "pair", [("r", [0, 1], cut(1, 2))])
    return m


def annotated_stages():
    """Two stages of two devices, which take turns; numbers have gaps."""
    m = mlp()
    configure(m, "turns", 4)
    annotate(m, "/a", "turns", [("h", [0, 2], cut(0, 2))], stage=3)
    annotate(m, "/b", "turns", stage=3)
    annotate(m, "/c", "turns", [("v", [[1, 3]])], stage=7)
    return m


def annotated_runs():
    """Stages and nothing else: each has a run of devices."""
    m = mlp()
    configure(m, "runs", 4)
    annotate(m, "/a", "runs", stage=0)
    annotate(m, "/c", "runs", stage=1)
    return m


def annotated_factors():
    """Dimensions that are products: N*2 with N cut, 2*6 with the 2 cut through and the 6 in two."""
    m = mlp()
    configure(m, "four", 4)
    annotate(m, "/a", "four", [("w", [0, 1, 2, 3], cut(1, (2, 2), (6, 2))), ("x", [[0, 1], [2, 3]], cut(0, ("N", 2)))])
    annotate(m, "/c", "four", [("r", [[0, 1], [2, 3]], cut(1, ("M", 2), (6, 1)))])
    return m


def annotated_bad():
    """Every error that annotations of a tensor can have."""
    m = mlp()
    four = [0, 1, 2, 3]
    configure(m, "four", 4)
    annotate(m, "/a", "four", [
        ("nothing", four, cut(0, 4)), ("x", four, cut(0, 4)), ("x", four, cut(0, 4)), ("w", [0, 1, 2, 4], cut(1, 4)),
        ("h", [0, 1, 2, 2], cut(0, 4))], stage=-2)
    annotate(m, "/a", "four")
    annotate(m, "/b", "other", [("h", four, cut(0, 4))])
    annotate(m, "/b", "", [("h", four, cut(0, 4))])
    annotate(m, "/b", "four", [("h", four, cut(2, 4)), ("r", [0, 1], cut(-1, 2), cut(1, 2))], stage=2)
    annotate(m, "/c", "four", [("r", four, cut(1, 5)), ("v", [0, 1], cut(1, 4)), ("y", [[], []], cut(0, 2))], stage=1)
    return m


def annotated_cuts():
    """Shards that are none."""
    m = mlp()
    configure(m, "four", 4)
    annotate(m, "/a", "four", [("x", [0], cut(0)), ("w", [0], cut(0, 0)), ("h", [0, 1], cut(1, (5, 1), (2, 2)))])
    annotate(m, "/b", "four", [("h", [0, 1], cut(1, (2, 1), (6, 2))), ("r", [0, 1], cut(1, ("A", 2), ("B", 1)))])
    annotate(m, "/c", "four", [("r", [0, 1], cut(1, (-6, 2))), ("v", [0, 1], cut(0, ("N", 2)))])
    return m


def annotated_sizes():
    """The largest numbers."""
    m = mlp()
    most, least = 2**63 - 1, -2**63
    configure(m, "four", 4)
    annotate(m, "/a", "four", [("x", [most], cut(0, most)), ("w", [least], cut(least, 1)), ("h", [most, least])])
    annotate(m, "/b", "four", [("h", [[most]]), ("r", [0], cut(1, (most, 1), (most, 1)))], stage=2**31 - 1)
    annotate(m, "/c", "four", [("r", [0], cut(most, 1)), ("v", [0], cut(0, (most, most)))], stage=-2**31)
    return m


def annotated_against():
    """Products whose operands have splits that contradict one another."""
    m = mlp()
    configure(m, "pair", 2)
    annotate(m, "/a", "pair", [("x", [0, 1], cut(1, 2)), ("w", [0, 1], cut(1, 2))])
    annotate(m, "/c", "pair", [("r", [0, 1], cut(0, 2)), ("v", [0, 1], cut(1, 2))])
    return m


def annotated_order():
    """Shards in an order that no grid has: backwards, along a diagonal, and the inner axis first."""
    m = mlp()
    configure(m, "four", 4)
    annotate(m, "/a", "four", [("x", [3, 2, 1, 0], cut(0, 4)), ("h", [[0, 3], [1, 2]], cut(1, 2))])
    annotate(m, "/c", "four", [("v", [0, 2, 1, 3], cut(0, 4))])
    return m


def annotated_no_grid():
    """Six devices as two by three, and as three by two."""
    m = mlp()
    configure(m, "six", 6)
    annotate(m, "/a", "six", [("w", [[0, 1, 2], [3, 4, 5]], cut(0, 2)), ("h", [[0, 1], [2, 3], [4, 5]], cut(1, 3))])
    return m


def annotated_some():
    """A tensor on some of the devices, without stages; a node in no stage; and one on another's devices."""
    m = mlp()
    configure(m, "pair", 2)
    configure(m, "four", 4)
    annotate(m, "/a", "pair", [("w", [0])])
    annotate(m, "/a", "four", [("w", [[0, 1]])], stage=0)
    annotate(m, "/b", "four", [("h", [[0, 1]])])
    annotate(m, "/c", "four", [("v", [[2, 3]]), ("r", [[1, 2]])], stage=1)
    return m


def annotated_twice():
    """Two configurations of one name."""
    m = mlp()
    configure(m, "four", 4)
    configure(m, "four", 4)
    return m


def annotated_names():
    """Four devices and the names of two; none; and no name."""
    m = mlp()
    configure(m, "four", 4, ["a", "b"])
    return m


def annotated_none():
    m = mlp()
    configure(m, "none", 0)
    return m


def annotated_wire():
    """A list of tensors that is a number."""
    m = mlp()
    configure(m, "pair", 2)
    annotate(m, "/b", "pair", [("r", [0, 1], cut(1, 2))])
    data = m.SerializeToString()
    return data.replace(b"\x0a\x04pair\x12", b"\x0a\x04pair\x10")


def annotated_cut_off():
    """A shard whose length is more than there is."""
    m = mlp()
    configure(m, "pair", 2)
    annotate(m, "/b", "pair", [("r", [0, 1], cut(1, 2))])
    data = m.SerializeToString()
    return data.replace(b"\x12\x02\x18\x02", b"\x12\x7f\x18\x02")


for make in (annotated, annotated_stages, annotated_runs, annotated_factors, annotated_bad, annotated_cuts,
             annotated_sizes, annotated_against, annotated_order, annotated_no_grid, annotated_some, annotated_twice,
             annotated_names, annotated_none, annotated_wire, annotated_cut_off):
    save(make.__name__, make())
