"""Writes a model of so many layers, each of which adds two products to its input:  deep.py LAYERS WIDTH > deep.nn"""

import sys


def main():
    layers, width = map(int, sys.argv[1:])
    weights = [f'%{w}{i}: f32[{width},{width}] weight "{w}{i}" train = normal(0,0.1)' for i in range(layers) for w in "ab"]
    print(f'module phase=typed\ngraph @main entry (%x0: f32[256,{width}] input "x", {", ".join(weights)}) {{')
    for i in range(layers):
        print(f"  %h{i} = linear %x{i}, %a{i}\n  %g{i} = gelu %h{i}\n  %y{i} = linear %g{i}, %b{i}\n  %x{i + 1} = add %y{i}, %x{i}")
    print(f'  return output "y" %x{layers}\n}}')


main()
