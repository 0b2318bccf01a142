"""Validates the JSON that nnaot and executables write against docs/schemas:  schemas.py

Small models are compiled and trained under several plans.  Each file must be valid, and invalid with an unknown key or without
a required one.  The schemas themselves are complete: every object is closed, every key has a type and a description, every
number a unit.  Exit status 77, which ctest takes as skipped, without the package jsonschema.
"""

import copy
import json
import pathlib
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))
import common
from common import NNAOT, ROOT, SAMPLES, check, data_flags, run

FOLDER = ROOT / "docs/schemas"
SCHEMAS = {p.name.removesuffix(".schema.json"): json.loads(p.read_text()) for p in sorted(FOLDER.glob("*.schema.json"))}
VALIDATOR = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
# model, ranks, options of nnaot, the measurements of the executable, evaluations
CASES = [
    ("mlp", 1, [], ["memory"], False),
    ("mlp", 2, ["--plan", "dp=2", "--dtype", "f16"], ["traffic", "trace"], False),
    ("gpt2", 2, ["--plan", "pp=2", "--micro-batches", 4], ["traffic", "trace"], False),
    ("mlp", 2, ["--plan", "auto"], ["traffic"], True),
]
# Compilations that end before collectives are chosen, or without a plan: predictions are null.
UNPLANNED = [["--loss", common.SAMPLE["mlp"]["loss"], "--stop-after", "autodiff"], ["--passes", "simplify"]]
# Models of nnaot-plan fit on clusters with a price, without, and without a plan, and the exit status.
FITTED = [(SAMPLES / "gpt2/gpt2.onnx", ["--batch", 16, "--loss", common.SAMPLE["gpt2"]["loss"], "--plan", "dp=2"], 0),
          (SAMPLES / "mlp/mlp.onnx", ["--batch", 16, "--loss", common.SAMPLE["mlp"]["loss"], "--plan", "dp=2"], 0),
          (ROOT / "tests/tools/inputs/big_products.nn", ["--loss", "mse(z)", "--plan", "dp=2"], 1)]
# Compilations with --report-json: a success, and errors of models and texts.
INPUTS = ROOT / "tests/frontend/inputs"
REPORTED = [(SAMPLES / "mlp/mlp.onnx", ["--batch", 16, "--loss", common.SAMPLE["mlp"]["loss"]], True),
            (INPUTS / "one_round.onnx", ["--batch", 2, "--loss", "loss"], False), (INPUTS / "refused_bodies.onnx", [], False),
            (ROOT / "tests/passes/autodiff/no-gradient.nn", ["--passes", "autodiff"], False)]


def resolve(schema, top):
    """Returns the schema with the keywords of its `$ref` added."""
    return {**resolve(top["$defs"][schema["$ref"].split("/")[-1]], top), **schema} if "$ref" in schema else schema


def is_number(schema):
    types = schema.get("type", [])
    return bool({"integer", "number"} & set([types] if isinstance(types, str) else types))


def incomplete(schema, top, where="$"):
    """Yields the gaps of a schema: open objects, keys without a type or description, numbers without a unit."""
    schema = resolve(schema, top)
    if "properties" in schema and schema.get("type") == "object" and "allOf" not in schema:
        if schema.get("additionalProperties") is not False: yield f"{where}: not closed"
        for key in set(schema.get("required", [])) - schema["properties"].keys(): yield f"{where}.{key}: required, not described"
    for key, value in {**schema.get("properties", {}), **schema.get("patternProperties", {})}.items():
        whole = resolve(value, top)
        if not {"type", "enum", "const"} & whole.keys(): yield f"{where}.{key}: no type"
        if "description" not in value: yield f"{where}.{key}: no description"
        if is_number(whole) and "unit" not in whole: yield f"{where}.{key}: a number without a unit"
        yield from incomplete(whole, top, f"{where}.{key}")
    values = schema.get("additionalProperties")
    if isinstance(values, dict) and is_number(values) and "unit" not in schema:
        yield f"{where}: numbers without a unit"
    if "items" in schema: yield from incomplete(schema["items"], top, f"{where}[]")
    for i, rule in enumerate(schema.get("allOf", [])): yield from incomplete(rule["then"], top, f"{where}/{i}")


def objects(schema, value, top, path=()):
    """Yields the path and the schema of every closed object of a document."""
    schema = resolve(schema, top)
    for rule in schema.get("allOf", []):
        if Draft202012Validator({**rule["if"], "$defs": top["$defs"]}).is_valid(value):
            schema = resolve(rule["then"], top)
    if isinstance(value, list):
        for i, item in enumerate(value): yield from objects(schema.get("items", {}), item, top, (*path, i))
    elif isinstance(value, dict):
        if schema.get("additionalProperties") is False: yield path, schema
        for key, item in value.items():
            yield from objects(schema.get("properties", {}).get(key, {}), item, top, (*path, key))


def shape(path, value):
    """Returns an equal key for objects that differ only in their position in a list and in their values."""
    return tuple("[]" if isinstance(p, int) else p for p in path), tuple(sorted(value)), value.get("ph")


def at(document, path):
    for p in path: document = document[p]
    return document


def part(document, path):
    """Returns the document with a single item in each list along the path, and the path in it: short documents are fast."""
    if not path: return document, ()
    head, *rest = path
    inner, inside = part(document[head], tuple(rest))
    if isinstance(head, int): return [inner], (0, *inside)
    return {**document, head: inner}, (head, *inside)


def mutate(name, document):
    """Checks that an object of each shape is invalid with an unknown key, and without each required key.  Returns their number."""
    schema, validator, seen = SCHEMAS[name], VALIDATOR[name], set()
    for long_path, closed in objects(schema, document, schema):
        kind = shape(long_path, at(document, long_path))
        if kind in seen: continue
        seen.add(kind)
        short, path = part(document, long_path)
        check(f"{name}: {path} alone is valid", validator.is_valid(short))
        changed = copy.deepcopy(short)
        at(changed, path)["no_such_key"] = 1
        # Refused for this key, not for another reason.
        check(f"{name}: {path} with an unknown key is invalid",
              any(e.validator == "additionalProperties" and list(e.absolute_path) == list(path)
                  for e in validator.iter_errors(changed)))
        for key in closed.get("required", []):
            changed = copy.deepcopy(short)
            del at(changed, path)[key]
            check(f"{name}: {path} without {key} is invalid", not validator.is_valid(changed))
    return len(seen)


def validate(name, document, of):
    """Checks a document and its mutations.  Returns the number of mutated objects."""
    errors = [f"{e.json_path}: {e.message}" for e in VALIDATOR[name].iter_errors(document)]
    check(f"{of}: {name} is valid", not errors, *errors[:10])
    return 0 if errors else mutate(name, document)


def train(folder, model, ranks, options, measured, evaluates):
    """Compiles and trains a model.  Yields the content of each file, and the name of its schema."""
    exe, log = folder / "train_rank", folder / "log.jsonl"
    common.compile_sample(model, exe, ranks=ranks, extra=[*options, "--summary", folder / "summary", "--trace",
                                                          folder / "predicted", "--comm-manifest", folder / "comm_manifest"])
    yield from ((name, json.loads((folder / name).read_text())) for name in ("summary", "comm_manifest"))
    yield "trace", json.loads((folder / "predicted").read_text())
    data = [str(flag) for flag in data_flags(model)]
    evaluated = [flag.replace("--", "--eval-") for flag in data] + ["--metric", "accuracy(logits)"] if evaluates else []
    run(exe, *data, *evaluated, "--steps", 3, "--log", log, *[word for name in measured for word in (f"--{name}", folder / name)])
    yield from ((name, json.loads((folder / name).read_text())) for name in measured)
    yield from (("log", line) for line in common.read_log(log))
    if evaluates:
        run(exe, *evaluated, "--eval-only", "--log", log)
        yield from (("log", line) for line in common.read_log(log))


def main():
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        gaps = list(incomplete(schema, schema))
        check(f"{name} is complete", not gaps, *gaps)
    mutated = dict.fromkeys(SCHEMAS, 0)
    with common.scratch() as path:
        folder = pathlib.Path(path)
        common.compile_in_a_hurry(folder)
        for case in CASES:
            for name, document in train(folder, *case):
                mutated[name] += validate(name, document, str(case))
        for options in UNPLANNED:
            run(NNAOT, SAMPLES / "mlp/mlp.onnx", "--batch", 16, *options, "--emit", "plan", "-o", folder / "summary")
            mutated["summary"] += validate("summary", json.loads((folder / "summary").read_text()), str(options))
        for path, options, succeeds in REPORTED:
            run(NNAOT, path, *options, "--emit", "nn", "-o", folder / "out.nn", "--report-json", folder / "problems",
                ok=0 if succeeds else 1)
            document = json.loads((folder / "problems").read_text())
            check(f"{path.name}: it says whether it succeeded", document["succeeded"] == succeeds, document)
            mutated["problems"] += validate("problems", document, path.name)
        priced = folder / "priced.lua"
        priced.write_text('return {like = "cpu:1x2", dollars_per_hour = 1}')
        for path, options, status in FITTED:
            text = run(NNAOT.with_name("nnaot-plan"), "fit", path, *options, "--json", "--cluster", f"{priced},cpu:1x2,cpu:1x3",
                       ok=status)
            mutated["fit"] += validate("fit", json.loads(text), path.name)
    for name, n in mutated.items():
        check(f"{name} has objects", n > 0)
        print(f"{name:14} {n:4} objects with keys added and removed")
    common.finish()


if __name__ == "__main__":
    main()
