"""Writes tests/eval/linear_attention: cases of LinearAttention longer than a chunk, in the layout of the ONNX suite.

    python3 tests/eval/make_linear_attention.py        needs the onnx and numpy packages

The results are those of the recurrence, token by token, in double; decays are strong, so that sums of them over a chunk overflow
an exponential.  The files are committed, so the test needs only nnaot-eval.
"""

import pathlib
import shutil

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "linear_attention"
RANDOM = np.random.default_rng(0)
TOKENS, HEADS, KV_HEADS, WIDTH, VALUES = 70, 2, 1, 4, 3


def recurrence(q, k, v, g, beta):
    """q (t, heads, width), k, v, g (t, kv_heads, …), beta (t, kv_heads); returns o and the state."""
    state, out = np.zeros((KV_HEADS, WIDTH, VALUES)), []
    for t in range(TOKENS):
        if g is not None:
            state = state * np.exp(g[t])[..., None]
        u = v[t]
        if beta is not None:
            u = beta[t][:, None] * (u - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * u[:, None, :]
        out.append(np.einsum("hkv,hk->hv", np.repeat(state, HEADS // KV_HEADS, 0), q[t]) / np.sqrt(WIDTH))
    return np.array(out), state


def case(rule, wide):
    q, v = RANDOM.standard_normal((TOKENS, HEADS, WIDTH)), RANDOM.standard_normal((TOKENS, KV_HEADS, VALUES))
    k = RANDOM.standard_normal((TOKENS, KV_HEADS, WIDTH))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g = -np.exp(2 * RANDOM.standard_normal((TOKENS, KV_HEADS, WIDTH if wide else 1))) if "gated" in rule else None
    beta = 1 / (1 + np.exp(-RANDOM.standard_normal((TOKENS, KV_HEADS)))) if "delta" in rule else None
    out, state = recurrence(q, k, v, g, beta)
    given = {n: x.reshape(1, TOKENS, -1).astype(np.float32)
             for n, x in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta)) if x is not None}
    want = {"y": out.reshape(1, TOKENS, -1).astype(np.float32), "state": state[None].astype(np.float32)}
    node = helper.make_node("LinearAttention", ["q", "k", "v", "", *("g" if n in given else "" for n in "g"),
                                                *(n for n in ("beta",) if n in given)], ["y", "state"], name="/attention",
                            q_num_heads=HEADS, kv_num_heads=KV_HEADS, update_rule=rule)
    infos = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in xs.items()] for xs in (given, want)]
    model = helper.make_model(helper.make_graph([node], "g", *infos), opset_imports=[helper.make_opsetid("", 27)], ir_version=10)
    data = FOLDER / f"{rule}{'_wide' if wide else ''}" / "test_data_set_0"
    data.mkdir(parents=True)
    (data.parent / "model.onnx").write_bytes(model.SerializeToString())
    for kind, xs in (("input", given), ("output", want)):
        for i, (n, x) in enumerate(xs.items()):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(x, n).SerializeToString())


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    for rule in ("linear", "gated", "delta", "gated_delta"):
        for wide in (False, True)[:1 + ("gated" in rule)]:
            case(rule, wide)


if __name__ == "__main__":
    main()
