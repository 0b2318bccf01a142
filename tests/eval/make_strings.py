"""Writes tests/eval/strings: operators on strings, and encoders, in the layout of the ONNX suite.

    python3 tests/eval/make_strings.py        needs the onnx, onnxruntime and numpy packages

The results are onnxruntime's; those of random regular expressions are Python's, which agree with RE2 on these forms.
"""

import pathlib
import random
import re
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FOLDER = pathlib.Path(__file__).resolve().parent / "strings"


def text(*items):
    return np.array(items, dtype=object)


def write(name, nodes, given, outputs, want=None, opset=20, ml=4, reference=False):
    """given: {input: array}; outputs: {name: (type, dimensions)}."""
    kinds = {k: TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for k, x in given.items()}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(k, kinds[k], x.shape) for k, x in given.items()],
                              [helper.make_tensor_value_info(k, *v) for k, v in outputs.items()])
    model = helper.make_model(graph, ir_version=9,
                              opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml)])
    if want is None:
        session = ReferenceEvaluator(model) if reference else onnxruntime.InferenceSession(model.SerializeToString())
        want = session.run(None, given)
    data = FOLDER / name / "test_data_set_0"
    data.mkdir(parents=True)
    (FOLDER / name / "model.onnx").write_bytes(model.SerializeToString())
    for kind, values in (("input", given.values()), ("output", want)):
        for i, value in enumerate(values):
            value = np.asarray(value)
            value = value.astype(object) if value.dtype.kind == "U" else value
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


def one(name, op, given, outputs, opset=20, ml=4, reference=False, **attributes):
    domain = "ai.onnx.ml" if op in ("LabelEncoder", "OneHotEncoder", "CategoryMapper") else ""
    write(name, [helper.make_node(op, list(given), list(outputs), name="/" + op, domain=domain, **attributes)], given, outputs,
          opset=opset, ml=ml, reference=reference)


def pattern(rng, depth=0):
    """A random expression over a few characters."""
    def atom():
        kind = rng.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return rng.choice("abc-")
        if kind < 6:
            return rng.choice([".", "[ab]", "[^a]", r"\w", r"\W", r"\d", r"\s", "[a-c1]", r"[\w.-]", r"\.", r"\b",
                               "é", r"[^\d]", "[-a]"])
        return ("(" if rng.random() < 0.5 else "(?:") + pattern(rng, depth + 1) + ")"
    def piece():
        a = atom()
        if a == r"\b" or rng.random() < 0.5:
            return a
        return a + rng.choice(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}"]) + rng.choice(["", "", "?"])
    return "|".join("".join(piece() for _ in range(rng.randrange(1, 4))) for _ in range(rng.choice([1, 1, 2])))


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    string, i64, f32, boolean = TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
    words = text("cat", "Dog", "", "cat", "straße", "ÉTÉ")
    one("concat", "StringConcat", {"x": words.reshape(2, 3), "y": text("!", "?").reshape(2, 1)}, {"z": (string, [2, 3])})
    one("split", "StringSplit", {"x": text(" a b  c ", "", "one", "a\tb")}, {"y": (string, None), "n": (i64, [4])}, reference=True)
    one("split_once", "StringSplit", {"x": text("a--b--c", "--", "")}, {"y": (string, None), "n": (i64, [3])},
        delimiter="--", maxsplit=1, reference=True)
    for action in ["NONE", "LOWER", "UPPER"]:
        for sensitive in [0, 1]:
            one(f"normalizer_{action.lower()}_{sensitive}", "StringNormalizer", {"x": text("Monday", "monday", "MONDAY", "Été")},
                {"y": (string, None)}, case_change_action=action, is_case_sensitive=sensitive, stopwords=["monday"],
                locale="C.UTF-8")
    # Elements are moved, compared and looked up as they are in tensors of numbers.
    write("moved", [helper.make_node("Constant", [], ["shape"], value_ints=[6]), helper.make_node("Transpose", ["x"], ["t"]),
                    helper.make_node("Constant", [], ["cat"], value_string="cat"),
                    helper.make_node("Reshape", ["t", "shape"], ["r"]),
                    helper.make_node("Gather", ["r", "at"], ["g"]), helper.make_node("Concat", ["g", "r"], ["c"], axis=0),
                    helper.make_node("Shape", ["c"], ["n"]),
                    helper.make_node("Equal", ["c", "cat"], ["e"]), helper.make_node("Where", ["e", "cat", "c"], ["w"])],
          {"x": words.reshape(2, 3), "at": np.array([3, -1], np.int64)}, {"w": (string, [8]), "n": (i64, [1]), "e": (boolean, [8])})

    numbers = np.array([[5, 7, 9], [7, -1, 5]], np.int64)
    reals = np.array([0.5, np.nan, 2, 1.25, -0.0], np.float32)
    one("labels_int_float", "LabelEncoder", {"x": numbers}, {"y": (f32, [2, 3])}, keys_int64s=[9, 5, 7],
        values_floats=[1.0, 2.0, 3.0], default_float=0.5)
    one("labels_int_int", "LabelEncoder", {"x": numbers}, {"y": (i64, [2, 3])}, keys_int64s=[7], values_int64s=[70])
    one("labels_int_string", "LabelEncoder", {"x": numbers}, {"y": (string, [2, 3])}, keys_int64s=[9, 5],
        values_strings=["nine", "five"])
    one("labels_float_int", "LabelEncoder", {"x": reals}, {"y": (i64, [5])}, keys_floats=[2.0, 0.5, float("nan"), 0.0],
        values_int64s=[2, 50, 7, 0], default_int64=-5)
    one("labels_string_int", "LabelEncoder", {"x": words}, {"y": (i64, [6])}, keys_strings=["Dog", "cat", "bird"],
        values_int64s=[1, 2, 3])
    one("labels_tensors", "LabelEncoder", {"x": numbers}, {"y": (TensorProto.DOUBLE, [2, 3])},
        keys_tensor=numpy_helper.from_array(np.array([7, 9], np.int64)),
        values_tensor=numpy_helper.from_array(np.array([1.5, 2.5])),
        default_tensor=numpy_helper.from_array(np.array([-1.0])))
    many = np.arange(0, 3000, 3, dtype=np.int64)
    random.Random(0).shuffle(many)
    one("labels_many", "LabelEncoder", {"x": np.arange(-2, 3002, dtype=np.int64)}, {"y": (i64, [3004])}, keys_int64s=many.tolist(),
        values_int64s=list(range(1000)))
    one("labels_1", "LabelEncoder", {"x": words}, {"y": (i64, [6])}, ml=1, classes_strings=["cat", "Dog"], default_int64=9)
    one("mapper", "CategoryMapper", {"x": numbers}, {"y": (string, [2, 3])}, ml=1, cats_strings=["a", "b"], cats_int64s=[5, 7],
        default_string="other")
    one("one_hot", "OneHotEncoder", {"x": numbers}, {"y": (f32, [2, 3, 3])}, ml=1, cats_int64s=[5, 9, -1], zeros=1)
    one("one_hot_all", "OneHotEncoder", {"x": numbers[:1]}, {"y": (f32, [1, 3, 3])}, ml=1, cats_int64s=[5, 9, 7], zeros=0)
    one("one_hot_strings", "OneHotEncoder", {"x": words}, {"y": (f32, [6, 2])}, ml=1, cats_strings=["cat", "Dog"], zeros=1)
    grams = dict(min_gram_length=1, max_gram_length=2, max_skip_count=1, ngram_counts=[0, 2], ngram_indexes=[2, 0, 1, 4])
    row = text("a", "b", "a", "c", "b", "a")
    for mode in ["TF", "IDF", "TFIDF"]:
        one("grams_" + mode.lower(), "TfIdfVectorizer", {"x": np.array([[1, 2, 1, 3], [2, 2, 1, 1]], np.int64)},
            {"y": (f32, [2, 5])}, mode=mode, pool_int64s=[1, 2, 1, 2, 2, 1], **grams)
    one("grams_strings", "TfIdfVectorizer", {"x": row}, {"y": (f32, [5])}, mode="TF", pool_strings=list("ab" "ab" "ba"), **grams)

    # Expressions with several matches each, or none.
    rng = random.Random(0)
    nodes, want, found = [], [], {}
    texts = ["", "a", "b", "ab", "ba", "aab", "abc", "a-b", "a.b", "1", "a1", "é", "aé", "a b", " ", "\n", "abab", "cc-",
             "--", "b1.c"]
    while len(found) < 240:
        p = pattern(rng)
        answers = [re.fullmatch(p, t, re.ASCII) is not None for t in texts]
        if p in found or (not any(answers) and rng.random() < 0.9):
            continue
        found[p] = answers
        nodes.append(helper.make_node("RegexFullMatch", ["x"], [f"y{len(want)}"], pattern=p))
        want.append(np.array(answers))
    rows = [helper.make_node("Concat", [f"y{i}" for i in range(len(want))], ["all"], axis=0)]
    write("expressions", nodes + rows, {"x": text(*texts)}, {"all": (boolean, [len(want) * len(texts)])},
          want=[np.concatenate(want)])


if __name__ == "__main__":
    main()
