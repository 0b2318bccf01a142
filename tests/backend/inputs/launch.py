"""launch.py LAYERS: a step of so many equal layers, whose updates are one launch on a GPU: of a weight, with a copy in 16 bits, and of
a bias.  The squares of the gradients of weights are another launch."""

import sys

n = int(sys.argv[1])
print('module phase=typed\n\ngraph @train entry (\n  %x: f32[8,6] input "x",\n  %lr: f32[] scalar "lr",')
print(",\n".join(f'  %w{i}: f32[6,6] weight "w{i}" train = normal(0,0.5),\n  %b{i}: f32[6] weight "b{i}" train = normal(0,0.5)'
                 for i in range(n)), "\n) {")
last = "%x"
for i in range(n):
    print(f"  %y{i} = linear {last}, %w{i}  # m.onnx:/layer.{i}/MatMul")
    last = f"%y{i}"
print(f"  %l = sum_squares {last}\n  %one = fill value=1 shape=[] to=f32")
for i in range(n):
    print(f"  %g{i} = linear_back_w %x, %y{i}  # ? <- gradient m.onnx:/layer.{i}/MatMul")
    print(f"  %h{i} = reduce_sum %y{i} axes=[0]  # ? <- gradient m.onnx:/layer.{i}/Add")
    print(f"  %s{i} = sum_squares %g{i}")
    print(f"  %n{i} = sgd %w{i}, %g{i}, %lr, %one\n  %m{i} = sgd %b{i}, %h{i}, %lr, %one")
    print(f"  %c{i} = cast %n{i} to=bf16")
results = ", ".join(f'update %w{i} %n{i}, update %b{i} %m{i}, output "c{i}" %c{i}, output "s{i}" %s{i}' for i in range(n))
print(f'  return output "loss" %l, {results}\n}}')
