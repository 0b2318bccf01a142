"""A model of mixtures, for auto_experts.test:  mixtures.py LAYERS WIDTH INNER EXPERTS ROWS

Each row goes to the expert with the largest score, two products with a GELU between them, and a residual sum follows.
"""

import sys

layers, width, inner, experts, rows = map(int, sys.argv[1:])
params, ops, last = [f'%x: f32[{rows},{width}] input "x"'], [], "x"
for i in range(layers):
    for name, shape in (("r", (width, experts)), ("up", (experts, width, inner)), ("down", (experts, inner, width))):
        params.append(f'%{name}{i}: f32{list(shape)} weight "{name}{i}" train = normal(0,1)')
    ops += [f"%s{i} = linear %{last}, %r{i}", f"%p{i} = softmax %s{i} axis=1", f"%k{i} = top_k %p{i} k=1",
            f"%e{i} = reshape %k{i} shape=[{rows}]", f"%a{i} = grouped_linear %up{i}, %{last}, %e{i}", f"%g{i} = gelu %a{i}",
            f"%y{i} = grouped_linear %down{i}, %g{i}, %e{i}", f"%h{i} = add %{last}, %y{i}"]
    last = f"h{i}"
ops += [f"%q = square %{last}", "%l = reduce_sum %q axes=[0,1]"]
print('module "mixtures" phase=typed\ngraph @main entry (' + ",\n  ".join(params) + ") {\n  " + "\n  ".join(ops)
      + '\n  return output "loss" %l\n}')
