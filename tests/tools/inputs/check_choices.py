"""check_choices.py M.csv ROW...: rows as NCCL's example tuner plugin reads them, and the choices expected of some

The format: ext-tuner/example of NCCL, README.md. A ROW is type,bytes,nodes,ranks,algorithm,protocol; bytes
may be "<N" or ">N".
"""

import sys

TYPES = "broadcast", "reduce", "allgather", "reducescatter", "allreduce"
ALGORITHMS = "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"
PROTOCOLS = "ll", "ll128", "simple"

rows = []
for line in open(sys.argv[1]):
    assert len(line) < 256 and line.endswith("\n") and not line.startswith("#")
    fields = line.strip().split(",")
    assert len(fields) == 10 and all(f and f == f.strip() for f in fields), line
    kind, least, most, algorithm, protocol, *numbers = fields
    channels, nodes, ranks, pipelined, registered = map(int, numbers)
    assert kind in TYPES and algorithm in ALGORITHMS and protocol in PROTOCOLS, line
    assert 0 < int(least) <= int(most) and 1 <= channels <= 32 and 1 <= nodes <= ranks and 1 < ranks, line
    assert pipelined == registered == -1
    # Only all_reduces have other algorithms than rings here; NVLS has one protocol.
    assert kind == "allreduce" or algorithm == "ring", line
    assert algorithm != "nvls" or protocol == "simple", line
    rows.append((kind, int(most), nodes, ranks, algorithm, protocol, channels))
assert rows
for wanted in sys.argv[2:]:
    kind, size, nodes, ranks, algorithm, protocol = wanted.split(",")
    found = [row for row in rows if (row[0], row[2], row[3]) == (kind, int(nodes), int(ranks)) and (
        row[1] < int(size[1:]) if size[0] == "<" else row[1] > int(size[1:]) if size[0] == ">" else row[1] == int(size))]
    assert found, wanted
    for row in found:
        assert row[4:6] == (algorithm, protocol), (wanted, row)
        # A channel for few bytes, all of them for many.
        assert row[6] == 1 if size[0] != ">" else row[6] > 4, row
