"""Models of auto.py that are not those of large_models.py and paper_models.py, as .onnx without weights.

Experts are routed: each token goes to its `k` best, whose weights are gathered for its row, as exporters write a mixture without
a loop; nnaot makes grouped products of them.
"""

from onnx import TensorProto

from large_models import Graph

IMAGE, PATCH = 224, 14  # of ViT-22B


def routed(g, y, name, width, inner, experts, k, tokens):
    """SwiGLU experts of y (batch, tokens, width)."""
    rows = g.op("Reshape", y, g.constant([-1, width]), name=f"/{name}/Reshape")
    p = g.op("Softmax", g.linear(rows, f"{name}.gate", width, experts), name=f"/{name}/Softmax", axis=-1)
    best, which = g.op("TopK", p, g.constant([k]), name=f"/{name}/TopK", n_out=2, axis=-1)
    which = g.op("Reshape", which, g.constant([-1]), name=f"/{name}/Reshape_1")
    x = g.op("Unsqueeze", rows, g.constant([1]), name=f"/{name}/Unsqueeze")
    x = g.op("Expand", x, g.constant([1, k, 1]), name=f"/{name}/Expand")
    x = g.op("Reshape", x, g.constant([-1, 1, width]), name=f"/{name}/Reshape_2")

    def product(x, part, n_in, n_out):
        w = g.op("Gather", g.weight(f"{name}.{part}", experts, n_in, n_out), which, name=f"/{name}/{part}/Gather")
        return g.op("MatMul", x, w, name=f"/{name}/{part}/MatMul")

    gate = product(x, "w1", width, inner)
    gate = g.op("Mul", gate, g.op("Sigmoid", gate, name=f"/{name}/Sigmoid"), name=f"/{name}/Mul")
    z = product(g.op("Mul", gate, product(x, "w3", width, inner), name=f"/{name}/Mul_1"), "w2", inner, width)
    z = g.op("Reshape", z, g.constant([-1, k, width]), name=f"/{name}/Reshape_3")
    z = g.op("Mul", z, g.op("Unsqueeze", best, g.constant([2]), name=f"/{name}/Unsqueeze_1"), name=f"/{name}/Mul_2")
    z = g.op("ReduceSum", z, g.constant([1]), name=f"/{name}/ReduceSum", keepdims=0)
    return g.op("Reshape", z, g.constant([-1, tokens, width]), name=f"/{name}/Reshape_4")


def swiglu(g, y, name, width, inner):
    gate = g.linear(y, f"{name}.gate_proj", width, inner)
    gate = g.op("Mul", gate, g.op("Sigmoid", gate, name=f"/{name}/Sigmoid"), name=f"/{name}/Mul")
    y = g.op("Mul", gate, g.linear(y, f"{name}.up_proj", width, inner), name=f"/{name}/Mul_1")
    return g.linear(y, f"{name}.down_proj", inner, width)


def mixtral(name, folder, layers=32, width=4096, heads=32, groups=8, inner=14336, experts=8, k=2, tokens=4096, words=32000):
    """Mixtral 8x7B (Jiang et al. 2024, table 1), without its rotary embedding."""
    g, size = Graph(name), width // heads
    ids = g.input("input_ids", TensorProto.INT64, ["batch", tokens])
    mask = g.causal(tokens)
    x = g.op("Gather", g.weight("embed_tokens.weight", words, width), ids)
    for i in range(layers):
        at, y = f"layers.{i}.self_attn", g.rms_norm(x, f"layers.{i}.input_layernorm", width)
        q = g.heads(g.linear(y, f"{at}.q_proj", width, width), f"{at}.q", tokens, heads, size)
        k_v = []
        for p in "kv":
            t = g.heads(g.linear(y, f"{at}.{p}_proj", width, groups * size), f"{at}.{p}", tokens, groups, size)
            t = g.op("Unsqueeze", t, g.constant([2]), name=f"/{at}.{p}/Unsqueeze")
            t = g.op("Expand", t, g.constant([1, 1, heads // groups, 1, 1]), name=f"/{at}.{p}/Expand")
            k_v.append(g.op("Reshape", t, g.constant([-1, heads, tokens, size]), name=f"/{at}.{p}/Reshape_1"))
        y = g.attention(q, *k_v, at, tokens, heads, size, size ** -0.5, mask)
        x = g.op("Add", x, g.linear(y, f"{at}.o_proj", width, width), name=f"/layers.{i}/Add")
        y = g.rms_norm(x, f"layers.{i}.post_attention_layernorm", width)
        x = g.op("Add", x, routed(g, y, f"layers.{i}.moe", width, inner, experts, k, tokens), name=f"/layers.{i}/Add_1")
    g.linear(g.rms_norm(x, "norm", width), "lm_head", width, words)
    return g.save(folder, ["batch", tokens, words])


def deepseek(name, folder, layers=61, dense=3, width=7168, heads=128, inner=18432, experts=256, k=8, of_expert=2048, tokens=4096,
             words=129280):
    """DeepSeek-V3 (2024, section 4.2): latent attention of 1,536 and 512, heads of 128, and 64 of the position, which all heads
    of keys share; one shared expert. Without its rotary embedding, the limit of nodes of a token, and multi-token prediction."""
    g, of_q, of_kv, size, turned = Graph(name), 1536, 512, 128, 64
    ids = g.input("input_ids", TensorProto.INT64, ["batch", tokens])
    mask = g.causal(tokens)
    x = g.op("Gather", g.weight("embed_tokens.weight", words, width), ids)
    for i in range(layers):
        at, y = f"layers.{i}.self_attn", g.rms_norm(x, f"layers.{i}.input_layernorm", width)
        q = g.rms_norm(g.linear(y, f"{at}.q_a_proj", width, of_q), f"{at}.q_a_layernorm", of_q)
        q = g.heads(g.linear(q, f"{at}.q_b_proj", of_q, heads * (size + turned)), f"{at}.q", tokens, heads, size + turned)
        latent = g.rms_norm(g.linear(y, f"{at}.kv_a_proj", width, of_kv), f"{at}.kv_a_layernorm", of_kv)
        key, value = (g.heads(g.linear(latent, f"{at}.{p}_b_proj", of_kv, heads * size), f"{at}.{p}", tokens, heads, size)
                      for p in "kv")
        place = g.heads(g.linear(y, f"{at}.k_rope_proj", width, turned), f"{at}.rope", tokens, 1, turned)
        place = g.op("Expand", place, g.constant([1, heads, 1, 1]), name=f"/{at}/Expand")
        key = g.op("Concat", key, place, name=f"/{at}/Concat", axis=-1)
        y = g.attention(q, key, value, at, tokens, heads, size, (size + turned) ** -0.5, mask)
        x = g.op("Add", x, g.linear(y, f"{at}.o_proj", heads * size, width), name=f"/layers.{i}/Add")
        y, mlp = g.rms_norm(x, f"layers.{i}.post_attention_layernorm", width), f"layers.{i}.mlp"
        if i < dense:
            z = swiglu(g, y, mlp, width, inner)
        else:
            z = routed(g, y, mlp, width, of_expert, experts, k, tokens)
            z = g.op("Add", z, swiglu(g, y, f"{mlp}.shared", width, of_expert), name=f"/{mlp}/Add")
        x = g.op("Add", x, z, name=f"/layers.{i}/Add_1")
    g.linear(g.rms_norm(x, "norm", width), "lm_head", width, words)
    return g.save(folder, ["batch", tokens, words])


def vit(name, folder, layers=48, width=6144, heads=48, inner=24576, classes=29593):
    """ViT-22B (Dehghani et al. 2023, section 2): attention and feed-forward of a layer in parallel, norms of queries and keys; the
    mean of the patches instead of its pooling by attention, and the classes of JFT."""
    g, size, tokens = Graph(name), width // heads, (IMAGE // PATCH) ** 2
    pixels = 3 * PATCH * PATCH
    x = g.linear(g.input("patches", TensorProto.FLOAT, ["batch", tokens, pixels]), "embed", pixels, width, bias=True)
    x = g.op("Add", x, g.weight("positions", tokens, width), name="/Add")
    for i in range(layers):
        at, y = f"blocks.{i}.attn", g.layer_norm(x, f"blocks.{i}.norm", width)
        q, k, v = (g.heads(g.linear(y, f"{at}.{p}", width, width), f"{at}.{p}", tokens, heads, size) for p in "qkv")
        q, k = (g.layer_norm(t, f"{at}.{p}_norm", size) for t, p in ((q, "q"), (k, "k")))
        a = g.attention(q, k, v, at, tokens, heads, size, size ** -0.5)
        a = g.linear(a, f"{at}.proj", width, width, bias=True)
        z = g.op("Gelu", g.linear(y, f"blocks.{i}.fc1", width, inner, bias=True), name=f"/blocks.{i}/Gelu", approximate="tanh")
        z = g.op("Add", a, g.linear(z, f"blocks.{i}.fc2", inner, width, bias=True), name=f"/blocks.{i}/Add")
        x = g.op("Add", x, z, name=f"/blocks.{i}/Add_1")
    x = g.op("ReduceMean", g.layer_norm(x, "norm", width), g.constant([1]), name="/ReduceMean", keepdims=0)
    g.linear(x, "head", width, classes, bias=True)
    return g.save(folder, ["batch", classes])
