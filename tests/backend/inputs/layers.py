"""layers.py LAYERS [SPAN [GROUP]]: a step of so many equal layers, each of a product with its weight, a dropout with its key, and an update.

Keys are cubes; with SPAN they grow by 1, and by more after so many layers.  With GROUP a gelu follows so many layers."""

import sys

n = int(sys.argv[1])
group = int(sys.argv[3]) if len(sys.argv) > 3 else 0
keys = [i * i * i for i in range(n)]
if len(sys.argv) > 2:
    span = int(sys.argv[2])
    keys = [i // span * 1000 + i % span for i in range(n)]
print('module phase=typed\n\ngraph @train entry (\n  %x: f32[8,6] input "x",\n  %lr: f32[] scalar "lr",\n  %step: i64[] scalar "step",'
      '\n  %seed: i64[] scalar "seed",')
print(",\n".join(f'  %w{i}: f32[6,6] weight "w{i}" train = normal(0,0.5)' for i in range(n)), "\n) {")
last = "%x"
for i in range(n):
    print(f"  %y{i} = linear {last}, %w{i}  # m.onnx:/layer.{i}/MatMul")
    print(f"  %d{i} = dropout %y{i}, %step, %seed ratio=0.5 key={keys[i]}  # m.onnx:/layer.{i}/Dropout")
    last = f"%d{i}"
    if group and i % group == group - 1:
        print(f"  %e{i} = gelu %d{i}  # m.onnx:/group.{i // group}/Gelu")
        last = f"%e{i}"
print(f"  %l = sum_squares {last}\n  %one = fill value=1 shape=[] to=f32")
for i in range(n):
    print(f"  %g{i} = linear_back_w %x, %d{i}  # ? <- gradient m.onnx:/layer.{i}/MatMul")
    print(f"  %n{i} = sgd %w{i}, %g{i}, %lr, %one")
print('  return output "loss" %l, ' + ", ".join(f"update %w{i} %n{i}" for i in range(n)) + "\n}")
