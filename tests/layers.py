"""Who may include whom: base <- ir <- {frontend, passes, backend} <- tools; rt stands alone, but for a header that all share.

Only nnaot-eval, tools/eval*.c, sees both the compiler and the runtime.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PUBLIC = {
    "backend/backend.h", "backend/temporary.h", "frontend/onnx.h", "frontend/onnx_tensor.h", "passes/plan/annotations/annotate.h", "passes/choose/choose.h",
    "passes/cluster/cluster.h", "passes/cost/collectives.h", "passes/cost/cost.h", "passes/cost/cost_step.h", "passes/plan/factoring.h", "passes/choose/needs.h",
    "passes/plan/op_names.h", "passes/train/optimizer_spec.h", "passes/train/param_groups.h", "passes/train/loss_spec.h", "passes/distribute/part.h", "passes/paths/path_cost.h", "passes/pass.h",
    "passes/passes.def", "passes/paths/path.h",
    "passes/plan/plan.h", "passes/plan/plan_texts.h", "passes/prove/prove.h", "passes/plan/saved/record.h", "passes/repeats/repeats.h", "passes/search/search.h",
    "passes/solver/json.h", "passes/solver/solver.h", "passes/cost/timeline.h",
    "rt/flags.def", "rt/launchers.def", "passes/schedule/best.h", "passes/schedule/kinds.h",
}
SHARED = {"rt/nearest.h"}  # which needs nothing of the runtime
MAY = {
    "passes/base": {"passes/base"},
    "passes/ir": {"passes/base", "passes/ir"},
    "passes/solver": {"passes/base", "passes/solver"},
    "passes/schedule": {"passes/base", "passes/solver", "passes/schedule"},
    "passes": {"passes/base", "passes/ir", "passes/solver", "passes/schedule", "passes"},
    "frontend": {"passes/base", "passes/ir", "frontend"},
    "backend": {"passes/base", "passes/ir", "backend"},
    "tools": {"passes/base", "passes/ir", "tools"},
    "rt": {"rt"},
}


def layer(path):
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "passes" and parts[1] in ("base", "ir", "solver", "schedule") else parts[0]


def resolve(source, name):
    """The file of ours that `#include "name"` means, or None."""
    for folder in [source.parent, ROOT / "passes", ROOT, ROOT / "rt", ROOT / "frontend", ROOT / "backend"]:
        path = (folder / name).resolve()
        if path.exists():
            return path.relative_to(ROOT)
    return None


bad, seen = [], 0
for folder in ("passes", "frontend", "backend", "tools", "rt"):
    for source in sorted((ROOT / folder).rglob("*.[ch]")):
        here = layer(source.relative_to(ROOT))
        for name in re.findall(r'^\s*#\s*include "(.+?)"', source.read_text(), re.M):
            target = resolve(source, name)
            if target is None:
                continue
            seen += 1
            there = layer(target)
            both = here == "tools" and there == "rt" and source.name.startswith("eval")
            if there not in MAY[here] and str(target) not in SHARED and not (here == "tools" and str(target) in PUBLIC) and not both:
                bad.append(f"{source.relative_to(ROOT)} includes {target}")
print("\n".join(bad) or f"{seen} includes, all downwards")
sys.exit(bool(bad) or seen < 100)
