"""Checks the includes: base <- ir <- {frontend, passes, backend} <- tools; rt stands alone, except for the files in SHARED;
within passes/, the folders are ordered (FOLDERS), and no folder includes a later one.

Only nnaot-eval, tools/eval*.c, includes both the compiler and the runtime.  backend/validate includes only backend.h of the
emitter, which it checks.  The planner writes no decisions, which passes/sharding/decide.h does, and only its search writes
splits of ops, which it restores.  A file in SHARED includes none of rt that is not, and the compiler includes each.  Prints the
folders of passes/ with the folders that each includes, and the files of rt with the folders of the compiler that include them.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PUBLIC = {
    "backend/backend.h", "backend/temporary.h", "backend/validate/validate.h", "frontend/onnx.h", "frontend/onnx_tensor.h",
    "passes/cluster/cluster.h", "passes/cost/collectives.h", "passes/cost/cost.h", "passes/cost/cost_comm.h",
    "passes/cost/cost_step.h", "passes/cost/price_terms.h", "passes/cost/timeline.h",
    "passes/ir/analysis/op_names.h", "passes/ir/analysis/origin.h", "passes/pass.h", "passes/passes.def", "passes/paths/path.h",
    "passes/paths/path_cost.h", "passes/paths/path_store.h", "passes/planner/annotations/annotate.h",
    "passes/planner/auto/choose.h", "passes/planner/auto/deal.h", "passes/planner/auto/evaluate.h",
    "passes/planner/auto/memory_breakdown.h", "passes/planner/auto/tables.h",
    "passes/planner/auto/unit_cost.h", "passes/planner/plan/factoring.h", "passes/planner/plan/plan.h",
    "passes/planner/plan/plan_texts.h", "passes/planner/saved/record.h", "passes/planner/search/search.h", "passes/prove/prove.h",
    "passes/repeats/repeats.h", "passes/schedule/best.h", "passes/schedule/kinds.h", "passes/solver/json.h",
    "passes/solver/solver.h", "passes/train/loss_spec.h", "passes/train/optimizer_spec.h", "passes/train/param_groups.h",
    "rt/flags.def", "rt/launchers.def",
}
SHARED = {  # of the runtime and the compiler: they include no other file of rt
    "rt/nearest.h", "rt/npy_header.h", "rt/small_operand.h", "rt/trailer.h", "rt/utf8.h", "rt/xxh64.h", "rt/temporary_file.h",
    "rt/descriptors.h", "rt/fault.h",
    "rt/collectives.def",
}
LIBRARIES = ("base", "ir", "solver", "schedule")  # of passes/, linked without the rest of it
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
FOLDERS = [
    ("base", "arenas, strings, tables, messages"),
    ("ir", "the language, its analyses, its verifier"),
    ("lua", "files in Lua"),
    ("cluster", "devices and links"),
    ("solver", "problems with costs of nodes and edges"),
    ("schedule", "timelines of pipelines"),
    (".", "pass.h and passes.def: the interface of a pass, and the list"),
    ("repeats", "repeated subgraphs"),
    ("simplify", "smaller programs"),
    ("fuse", "fewer kernels"),
    ("lower", "types and layouts of the target"),
    ("memory", "memory planning and offloading"),
    ("paths", "communication from one placement to another"),
    ("cost", "estimated seconds and bytes"),
    ("prove", "the proof of a plan"),
    ("manager", "pipelines of passes, dumps"),
    ("overlap", "communication beside computation"),
    ("pipeline", "pipeline parallelism"),
    ("sharding", "layouts and splits of every value and op"),
    ("train", "loss, gradients, optimizer"),
    ("comm", "reshards as collectives"),
    ("planner/annotations", "a model's own plan"),
    ("planner/plan", "the text of a plan"),
    ("planner/saved", "plans written and read back"),
    ("planner/search", "a graph as a problem for the solver"),
    ("planner/stages", "stages of pipelines"),
    ("planner/lua", "the language of plans"),
    ("planner/auto", "--plan auto"),
    ("planner", "the pass that runs a plan"),
]
ORDER = {folder: i for i, (folder, _) in enumerate(FOLDERS)}


def layer(path):
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "passes" and parts[1] in LIBRARIES else parts[0]


def folder_of(path):
    """Returns the row in FOLDERS of a file in passes/; only the subfolders of planner/ have rows of their own."""
    inside = path.parts[1:-1]
    if not inside:
        return "."
    return "/".join(inside[:2]) if inside[0] == "planner" else inside[0]


def resolve(source, name):
    """Returns the file of the project included by `#include "name"`, or None."""
    for folder in [source.parent, ROOT / "passes", ROOT, ROOT / "rt", ROOT / "frontend", ROOT / "backend"]:
        path = (folder / name).resolve()
        if path.exists():
            return path.relative_to(ROOT)
    return None


def writes_decisions(path, text):
    """Returns the first assignment to decisions or splits in a file of the planner that may not write them, or None."""
    if path.parts[:2] != ("passes", "planner"):
        return None
    index = r"(?:\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\])"  # may itself have an index
    targets = rf"\bdecisions\.\w+{index}*" if path.parts[2] == "search" else rf"(?:\bdecisions\.\w+{index}*|->split{index})"
    found = re.search(targets + r"\s*=[^=].*", text)
    return found and found[0]


def main():
    bad, seen, includes, shared = [], 0, collections.defaultdict(set), collections.defaultdict(set)
    for top in ("passes", "frontend", "backend", "tools", "rt"):
        sources = [s for s in sorted((ROOT / top).rglob("*")) if s.suffix in (".c", ".h", ".cu", ".cuh", ".def")]
        for source in sources:
            path = source.relative_to(ROOT)
            here = layer(path)
            if write := writes_decisions(path, source.read_text()):
                bad.append(f"{path} writes a decision of passes/sharding: {write}")
            for name in re.findall(r'^\s*#\s*include "(.+?)"', source.read_text(), re.M):
                target = resolve(source, name)
                if target is None:
                    continue
                seen += 1
                there = layer(target)
                both = here == "tools" and there == "rt" and source.name.startswith("eval")
                allowed = there in MAY[here] or str(target) in SHARED or here == "tools" and str(target) in PUBLIC
                if not allowed and not both:
                    bad.append(f"{path} includes {target}")
                if there == "rt" and here != "rt" and not source.name.startswith("eval"):
                    shared[str(target)].add(path.parts[0])
                if str(path) in SHARED and str(target) not in SHARED:
                    bad.append(f"{path}, which the compiler includes, includes {target}")
                if "validate" in path.parts and target.parts[0] == "backend" and "validate" not in target.parts and \
                        str(target) != "backend/backend.h":
                    bad.append(f"{path} includes {target} of the emitter, which it checks")
                if top == "passes" and target.parts[0] == "passes" and folder_of(path) != folder_of(target):
                    includes[folder_of(path)].add(folder_of(target))
                    for file in (path, target):
                        if folder_of(file) not in ORDER:
                            bad.append(f"{file}: its folder is not in the order of folders")
                    if ORDER.get(folder_of(target), 0) > ORDER.get(folder_of(path), 0):
                        bad.append(f"{path} includes {target}, of a folder above its own")
    for folder, about in FOLDERS:
        print(f"{folder:20} {about:62} {' '.join(sorted(includes[folder], key=lambda f: ORDER.get(f, 0)))}")
    print("\nof rt:")
    for file, folders in sorted(shared.items()):
        print(f"{file:83} {' '.join(sorted(folders))}")
    listed = SHARED | {file for file in PUBLIC if file.startswith("rt/")}
    bad += [f"{file}: the compiler does not include it" for file in sorted(listed - shared.keys())]
    print("\n".join(bad) or f"{seen} includes, all downwards")
    sys.exit(bool(bad) or seen < 100)


if __name__ == "__main__":
    main()
