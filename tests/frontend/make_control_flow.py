"""Models with loops and branches.  Each function is one model, named like its file: see make_models.py."""

import numpy as np
from onnx import helper, numpy_helper

from model_parts import BOOL, I64, body, ints, model, node, numbers, value, weight


def branch():
    """An If whose condition is constant: the rate is 16000 in practice."""
    then = helper.make_graph([node("Mul", "x w", "t", "/mul")], "then", [], [value("t", None)],
                             [weight("w", 2)])
    other = helper.make_graph([node("Nonsense", "x", "t")], "else", [], [value("t", None)])
    return model([node("Constant", "", "rate", value_int=16000), node("Constant", "", "want", value_int=16000),
                  node("Equal", "rate want", "c"),
                  node("If", "c", "y", "/if", then_branch=then, else_branch=other)],
                 [value("x", [2])], "y")


def loops():
    """A Scan over two tensors, one of them backwards; a Loop with slices; one whose condition ends it."""
    scan = body([node("Add", "s a", "t", "/add"), node("Mul", "t b", "u", "/mul")], "s a b", "t u")
    loop = body([node("Mul", "c w", "d", "/mul"), node("Identity", "go", "on", "/go"), node("Neg", "d", "e", "/neg")],
                "i go c", "on d e")
    until = body([node("Less", "i two", "on", "/less"), node("Exp", "c", "d", "/exp")], "i go c", "on d")
    return model(
        [node("Scan", "s x x", "last all", "/scan", body=scan, num_scan_inputs=2, scan_input_directions=[0, 1],
              scan_output_axes=[1]),
         node("Loop", "n _ w", "p slices", "/loop", body=loop), node("Loop", "_ true w", "q", "/until", body=until)],
        [value("s", (3,)), value("x", (2, 3))], "last all p slices q",
        [weight("w", 3), numpy_helper.from_array(np.int64(2), "n"), numpy_helper.from_array(np.int64(2), "two"),
         numpy_helper.from_array(np.array(True), "true")], opset=17)


def long_loops(padding):
    """Loops of 5 iterations; with padding their bodies are too long to be put in place.  A Scan of all axes and directions
    that reads names from outside, one that goes backwards, and a Loop that reads its number and a constant result."""
    pad = [node("Identity", f"p{i}" if i else "s", f"p{i + 1}") for i in range(padding)]
    last = f"p{padding}" if padding else "s"
    scan = body([*pad, node("Mul", "a w", "m", "/mul"), node("Add", f"{last} m", "t", "/add"), node("Mul", "b t", "u", "/u"),
                 node("Tanh", "t", "v", "/v")], "s a b", "t u v")
    back = body([*pad, node("MatMul", "s r", "k", "/k"), node("Add", "k a", "t", "/t"),
                 node("Identity", "t", "u")], "s a", "t u")
    loop = body([*pad, node("Gather", "rows i", "row", "/row"), node("Add", f"{last} row", "t", "/next"),
                 node("Identity", "go", "on"), node("Exp", "two", "e", "/e")], "i go s", "on t row e")
    inner = body([node("Add", "z w", "d", "/inner"), node("Identity", "more", "on2")], "j more z", "on2 d")
    outer = body([*pad, node("Loop", "five _ s", "c", "/in", body=inner), node("Identity", "go", "on")], "i go s", "on c")
    return model(
        [node("Scan", "s0 x y", "last all rest", "/scan", body=scan, num_scan_inputs=2, scan_input_axes=[1, 0],
              scan_input_directions=[0, 1], scan_output_axes=[1, -1], scan_output_directions=[1, 0]),
         node("Scan", "s0 y", "first back", "/back", body=back, num_scan_inputs=1, scan_input_directions=[1]),
         node("Loop", "five _ s0", "sum taken same", "/loop", body=loop),
         node("Loop", "five true s0", "nested", "/nested", body=outer)],
        [value("s0", (3,)), value("x", (3, 5)), value("y", (5, 3))], "last all rest first back sum taken same nested",
        [numbers("w", 0.5, -1, 2), numbers("two", 1, 2), numpy_helper.from_array(np.eye(3, k=1, dtype=np.float32), "r"),
         numpy_helper.from_array(np.arange(15, dtype=np.float32).reshape(5, 3) / 8, "rows"),
         numpy_helper.from_array(np.int64(5), "five"), numpy_helper.from_array(np.array(True), "true")], opset=17)


def grown_state():
    """Bodies that fit no loop, of few iterations: a state that grows, a condition that counts, and a random number."""
    grows = body([*[node("Identity", f"p{i}" if i else "c", f"p{i + 1}") for i in range(50)],
                  node("Concat", "c p50", "d", "/cat", axis=0), node("Identity", "go", "on")], "i go c", "on d")
    until = body([*[node("Identity", f"p{i}" if i else "c", f"p{i + 1}") for i in range(50)],
                  node("Less", "i two", "on", "/less"), node("Exp", "p50", "d", "/exp")], "i go c", "on d")
    noise = body([*[node("Identity", f"p{i}" if i else "c", f"p{i + 1}") for i in range(50)],
                  node("RandomUniformLike", "p50", "d", "/noise"), node("Identity", "go", "on")], "i go c", "on d")
    return model(
        [node("Loop", "four _ x", "a", "/grows", body=grows), node("Loop", "many true x", "b", "/until", body=until),
         node("Loop", "four _ x", "c", "/noise", body=noise)],
        [value("x", (1,))], "a b c",
        [numpy_helper.from_array(np.int64(4), "four"), numpy_helper.from_array(np.int64(2), "two"),
         numpy_helper.from_array(np.int64(10**12), "many"), numpy_helper.from_array(np.array(True), "true")], opset=17)


def ends_early():
    """Loops that end by data: after at most 5 iterations of 8 the state is above 3, and one may not begin at all."""
    until = body([node("Mul", "c two", "d", "/double"), node("ReduceMax", "d", "m", keepdims=0), node("Less", "m three", "on")],
                 "i go c", "on d")
    return model([node("ReduceMax", "x", "top", keepdims=0), node("Less", "top three", "begin"),
                  node("Loop", "eight _ x", "y", "/until", body=until), node("Loop", "eight begin x", "z", "/maybe", body=until)],
                 [value("x", (2,))], "y z", [numbers("two", 2, 2), numpy_helper.from_array(np.float32(3), "three"),
                                            numpy_helper.from_array(np.int64(8), "eight")])


def empty_loop():
    """A loop whose body gives a condition and nothing else."""
    return model([node("Loop", "many _", "z", "/empty", body=body([node("Identity", "go", "on")], "i go", "on")),
                  node("Neg", "z", "y")], [value("x", (2,))], "y", [numpy_helper.from_array(np.int64(1000), "many")])


def past_end():
    """A loop that ends by data after 3 iterations of 8: a fourth one would look up a row that there is not, and the derivative of
    its root is infinite."""
    until = body([node("Gather", "table i", "r", "/row"), node("Sub", "three c", "e"), node("Sqrt", "e", "f", "/root"),
                  node("Add", "c f", "g"), node("Add", "g r", "h"), node("Min", "h three", "d"),
                  node("ReduceMax", "d", "m", keepdims=0), node("Less", "m three", "on")], "i go c", "on d")
    return model([node("Loop", "eight _ x", "y", "/until", body=until), node("ReduceSum", "y", "sum", keepdims=0)],
                 [value("x", (2,))], "sum", [numpy_helper.from_array(np.zeros((3, 2), np.float32), "table"),
                                             numpy_helper.from_array(np.float32(3), "three"),
                                             numpy_helper.from_array(np.int64(8), "eight")])


def long_loop_errors():
    """Long loops that fit none: a state that grows, a condition of data, a random number, a body of an unknown operator."""
    grows = body([node("Concat", "c c", "d", "/cat", axis=0), node("Identity", "go", "on")], "i go c", "on d")
    data = body([node("ReduceSum", "c", "z", keepdims=0), node("Cast", "z", "on", to=BOOL), node("Exp", "c", "d"),
                 node("Neg", "d", "e")], "i go c", "on d e")
    noise = body([node("RandomUniformLike", "c", "d", "/noise"), node("Identity", "go", "on")], "i go c", "on d")
    unknown = body([node("Nothing", "c", "d", "/what"), node("Identity", "go", "on")], "i go c", "on d")
    short = body([node("Add", "s a", "t")], "s a", "t")
    return model(
        [node("Loop", "many _ x", "a", "/grows", body=grows), node("Loop", "many _ x", "b b2", "/data", body=data),
         node("Loop", "many _ x", "c", "/noise", body=noise), node("Loop", "many _ x", "d", "/unknown", body=unknown),
         node("Scan", "x y", "e", "/widens", body=short, num_scan_inputs=1)],
        [value("x", (1,)), value("y", (500, 3))], "a b c d e", [numpy_helper.from_array(np.int64(1000), "many")], opset=17)


def loop_errors():
    """Loops that depend on data, or whose bodies do not fit."""
    one = body([node("Identity", "go", "on"), node("Exp", "c", "d")], "i go c", "on d")
    none = body([node("Identity", "go", "on")], "i go", "on")
    data = body([node("ReduceSum", "c", "z", keepdims=0), node("Cast", "z", "on", to=BOOL), node("Exp", "c", "d")], "i go c",
                "on d")
    scan = body([node("Add", "s a", "t")], "s a", "t")
    return model(
        [node("Loop", "long _ x", "a", "/long", body=one), node("Loop", "long _ x", "b", "/body", body=none),
         node("Loop", "_ _ x", "c", "/data", body=data), node("Loop", "m _ x", "d", "/count", body=one),
         node("Scan", "y y", "e", "/scan", body=scan, num_scan_inputs=1), node("Scan", "s w", "f", "/length", body=scan,
                                                                                num_scan_inputs=1)],
        [value("x", (3,)), value("y", (100,)), value("m", (), I64), value("s", ())], "a b c d e f",
        [numpy_helper.from_array(np.int64(65), "long"), weight("w", 0)], opset=17)


def refused_bodies():
    """Bodies that are not imported: of an If on data, a Loop as long as data says, and readers of a failed node."""
    def strange(x, y, name="strange"): return node("Nonsense", x, y, name)
    then = body([strange("x", "t")], "", "t")
    other = body([node("If", "c", "u", "inner", then_branch=body([strange("x", "v")], "", "v"),
                       else_branch=body([node("Exp", "x", "v"), strange("v", "dead", "dead")], "", "v"))], "", "u")
    loop = body([node("Identity", "go", "on"), strange("k", "d")], "i go k", "on d")
    f = helper.make_function("my", "F", ["x"], ["y"], [strange("x", "h"), node("Relu", "h", "y", "relu")],
                             [helper.make_opsetid("", 17)])
    return model(
        [node("If", "c", "a", "/if", then_branch=then, else_branch=other), node("Loop", "m _ x", "b", "/loop", body=loop),
         strange("x", "z", "/first"), node("F", "z", "e", "/call", domain="my"),
         node("Scan", "x z", "f g", "/scan", num_scan_inputs=1, body=body([strange("s r", "q w")], "s r", "q w"))],
        [value("x", [2]), value("c", [], BOOL), value("m", [], I64)], "a b e f g", functions=[f], domains=["my"])


def condition():
    """An If whose condition is data: it reads a weight and a constant from outside, which the model reads after it, too."""
    then = helper.make_graph([node("Neg", "x", "n"), node("Add", "n w", "t")], "b", [], [value("t", None)])
    other = helper.make_graph([node("Reshape", "x shape", "r"), node("Identity", "r", "e")], "b", [], [value("e", None)])
    return model([node("If", "c", "y", "/if", then_branch=then, else_branch=other), node("Reshape", "y shape", "z")],
                 [value("x", [2]), value("c", [], BOOL)], "z", [weight("w", 2), ints("shape", 2)])


def branch_errors():
    """Ifs on data that cannot run: branches of two shapes, a random number, several conditions, an unknown operator."""
    def branch(*nodes):
        return helper.make_graph(list(nodes), "b", [], [value("t", None)])

    same, longer = branch(node("Neg", "x", "t")), branch(node("Concat", "x x", "t", axis=0))
    noise, unknown = branch(node("RandomUniformLike", "x", "t")), branch(node("Nothing", "x", "t", "/what"))
    return model([node("If", "c", "a", "/shapes", then_branch=same, else_branch=longer),
                  node("If", "c", "b", "/noise", then_branch=noise, else_branch=same),
                  node("If", "d", "e", "/several", then_branch=same, else_branch=same),
                  node("If", "c", "f", "/unknown", then_branch=same, else_branch=unknown)],
                 [value("x", [2]), value("c", [], BOOL), value("d", [2], BOOL)], "a b e f")


MODELS = [branch, loops, loop_errors, grown_state, ends_early, past_end, empty_loop, long_loop_errors, condition, branch_errors,
          refused_bodies]
