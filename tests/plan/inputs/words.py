"""A model of layers between a table of words and their logits, for auto_words.test:  words.py LAYERS WIDTH WORDS ROWS"""

import sys

layers, width, words, rows = map(int, sys.argv[1:])
weights = [f'%w{i}: f32[{width},{words if i == layers else width}] weight "w{i}" train = normal(0,1)' for i in range(layers + 1)]
print(f'module "words" phase=typed\ngraph @main entry (%ids: i64[{rows}] input "ids", %y: i64[{rows}] input "y", '
      f'%t: f32[{words},{width}] weight "t" train = normal(0,1),\n  ' + ",\n  ".join(weights) + ") {")
print("  %h0 = gather %t, %ids axis=0")
for i in range(layers):
    print(f"  %p{i} = linear %h{i}, %w{i}\n  %h{i + 1} = gelu %p{i}")
print(f"  %z = linear %h{layers}, %w{layers}\n  %r, %lse = cross_entropy %z, %y ignore=-100\n  %l = reduce_sum %r axes=[0]")
print('  return output "loss" %l\n}')
