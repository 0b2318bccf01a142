"""Models of sequences, optionals, strings and ai.onnx.ml.  Each function is one model, named like its file: see make_models.py."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from model_parts import F32, I64, ints, model, node, numbers, value, words


def split_attribute():
    """SplitToSequence has its sizes as an operand only."""
    return model([node("SplitToSequence", "x", "s", "/parts", split=[1, 2]), node("ConcatFromSequence", "s", "y", axis=0)],
                 [value("x", (3, 4))], "y")


def sequences():
    """split(2, dim=1) and chunk() as PyTorch's exporter writes them, and every other operator of sequences."""
    return model(
        [node("SplitToSequence", "x two", "parts", "/split", axis=1),
         node("SequenceAt", "parts zero", "a", "/a"), node("SequenceAt", "parts last", "b", "/b"),
         node("SplitToSequence", "x sizes", "uneven", "/sizes", axis=-1),
         node("SequenceAt", "uneven one", "c", "/c"),
         node("SplitToSequence", "x", "rows", "/rows", keepdims=0),
         node("SequenceAt", "rows zero", "r", "/r"), node("Add", "x r", "cr", "/cr"),
         node("SequenceConstruct", "a b", "pair", "/pair"),
         node("SequenceInsert", "pair a one", "three", "/insert"),
         node("Identity", "three", "same", "/same"),
         node("SequenceErase", "same zero", "two_left", "/erase"),
         node("SequenceEmpty", "", "none", "/none"),
         node("SequenceInsert", "none a", "only", "/only"),
         node("SequenceLength", "same", "n", "/n"),
         node("ConcatFromSequence", "two_left", "beside", "/concat", axis=1),
         node("ConcatFromSequence", "only", "stacked", "/stack", axis=0, new_axis=1),
         node("Cast", "n", "nf", "/nf", to=F32), node("Mul", "beside nf", "y", "/y"),
         node("Optional", "pair", "some", "/some"), node("OptionalHasElement", "some", "has", "/has"),
         node("OptionalGetElement", "some", "got", "/got"),
         helper.make_node("Optional", [], ["nothing"], "/nothing", type=helper.make_tensor_type_proto(F32, [2])),
         node("OptionalHasElement", "nothing", "lacks", "/lacks"),
         node("SequenceMap", "got a", "mapped", "/map", body=helper.make_graph(
             [node("Sub", "p q", "d"), node("Concat", "d p", "e", axis=1)], "body", [value("p", None), value("q", None)],
             [value("e", None)]))],
        [value("x", [2, 5])], "y c cr stacked two_left has lacks mapped",
        [ints("sizes", 2, 3), numpy_helper.from_array(np.array(2, np.int64), "two"),
         *(numpy_helper.from_array(np.array(v, np.int64), k) for k, v in (("zero", 0), ("one", 1), ("last", -2)))])


def sequence_errors():
    """A position that is data or out of range, parts that do not fit, a sequence in place of a tensor, empty optionals."""
    return model(
        [node("SplitToSequence", "x two", "parts", "/split", axis=1),
         node("SequenceAt", "parts i", "a", "/data"), node("SequenceAt", "parts seven", "b", "/outside"),
         node("SplitToSequence", "x sizes", "long", "/sizes", axis=1), node("SequenceAt", "long two", "c", "/c"),
         node("Relu", "parts", "d", "/relu"), node("SequenceAt", "x two", "e", "/tensor"),
         node("SequenceEmpty", "", "none"), node("ConcatFromSequence", "none", "f", "/empty", axis=0),
         node("SequenceErase", "none", "g", "/erase"), node("SequenceLength", "g", "h", "/h"),
         helper.make_node("Optional", [], ["nothing"], "/nothing", type=helper.make_tensor_type_proto(F32, [2])),
         node("OptionalGetElement", "nothing", "k", "/get"), node("Relu", "nothing", "l", "/nothing_relu"),
         node("SequenceLength", "nothing", "m", "/length"),
         node("SequenceMap", "parts none", "o", "/map", body=helper.make_graph(
             [node("Add", "p q", "s")], "body", [value("p", None), value("q", None)], [value("s", None)])),
         node("SequenceMap", "x", "p", "/map_tensor", body=helper.make_graph(
             [node("Relu", "p", "s")], "body", [value("p", None)], [value("s", None)]))],
        [value("x", [2, 5]), value("i", [], I64)], "a b c d e f h k l m nothing o p",
        [ints("sizes", 2, 4), numpy_helper.from_array(np.array(2, np.int64), "two"),
         numpy_helper.from_array(np.array(7, np.int64), "seven")])


def sequence_inputs():
    """A sequence and an optional among the inputs, whose values are not known at compile time."""
    m = model([node("SequenceLength", "s", "n", "/n"), node("OptionalHasElement", "o", "h", "/h")], [], "n h")
    tensor = helper.make_tensor_type_proto(F32, [2])
    m.graph.input.extend([helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
                          helper.make_value_info("o", helper.make_optional_type_proto(tensor))])
    return m


ML = "ai.onnx.ml"


def strings():
    """Strings in initializers and attributes: their operators are gone after the import, and the result is of numbers."""
    return model(
        [node("StringConcat", "names suffix", "full", "/concat"), node("Equal", "full wanted", "is", "/equal"),
         node("LabelEncoder", "full", "codes", "/codes", domain=ML, keys_strings=["b!", "a!"], values_floats=[2.0, 1.0]),
         node("Where", "is x codes", "y", "/where"), node("Size", "names", "n", "/size"),
         node("LabelEncoder", "i", "z", "/lookup", domain=ML, keys_int64s=[7, 3, 5], values_floats=[0.5, 0.25, 0.75])],
        [value("x", [3]), value("i", [2], I64)], "y n z",
        [words("names", "a", "b", "c"), words("suffix", "!"), words("wanted", "b!")], opset=20, domains=[(ML, 2)])


def string_errors():
    """Strings where numbers are needed, among numbers, as an output, and patterns that cannot be read."""
    bad = ["(", "a{2", "a**", "[b-a]", "(?i)a", r"\pL", "((((a{1000}){1000}){1000}){1000})", "[z", r"\q"]
    return model(
        [node("Add", "names names", "a", "/add"), node("Concat", "names i", "b", "/concat", axis=0),
         node("StringConcat", "i names", "c", "/numbers"), node("Identity", "names", "d", "/output"),
         node("LabelEncoder", "names", "e", "/keys", domain=ML, keys_int64s=[1], values_floats=[2.0]),
         node("LabelEncoder", "i", "f", "/values", domain=ML, keys_int64s=[1, 2], values_floats=[2.0]),
         node("LabelEncoder", "i", "g", "/labels", domain=ML, keys_int64s=[1, 2], values_strings=["x", "y"]),
         node("StringConcat", "g names", "h", "/computed"), node("SequenceConstruct", "names", "s", "/sequence"),
         node("SequenceLength", "s", "k", "/length"), node("StringNormalizer", "names", "m", "/case", case_change_action="TITLE"),
         node("TfIdfVectorizer", "i", "o", "/grams", mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0,
              ngram_counts=[0, 1], ngram_indexes=[0, 1], pool_int64s=[1, 2, 3, 4]),
         *(node("RegexFullMatch", "names", f"r{i}", f"/regex{i}", pattern=p) for i, p in enumerate(bad))],
        [value("i", [2], I64)], "a b c d e f h k m o " + " ".join(f"r{i}" for i in range(len(bad))), [words("names", "a", "b")],
        opset=20, domains=[(ML, 4)])


def string_input():
    """An input of strings, which a program cannot have."""
    return model([node("LabelEncoder", "s", "y", "/codes", domain=ML, keys_strings=["a"], values_int64s=[1])],
                 [value("s", [3], TensorProto.STRING)], "y", domains=[(ML, 2)])


def ml_errors():
    """Trees with nodes that do not exist or lead back, coefficients of another number of features, labels of strings."""
    tree = dict(domain=ML, n_targets=2, tree_roots=[0], nodes_featureids=[0, 1], nodes_truenodeids=[1, 0],
                nodes_falsenodeids=[0, 1], nodes_trueleafs=[0, 1], nodes_falseleafs=[1, 1], leaf_targetids=[0, 1],
                nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [2], [0, 6]), nodes_splits=numbers("s", 0, 0),
                leaf_weights=numbers("w", 1, 2), membership_values=numbers("v", 1, np.nan))
    old = dict(domain=ML, n_targets=1, nodes_treeids=[0, 0], nodes_nodeids=[0, 1], nodes_featureids=[0, 0],
               nodes_modes=["BRANCH_LEQ", "LEAF"], nodes_truenodeids=[1, 0], nodes_falsenodeids=[1, 0],
               nodes_values=[0.0, 0.0], target_treeids=[0], target_nodeids=[1], target_ids=[0], target_weights=[1.0])
    new, before, linear = "TreeEnsemble", "TreeEnsembleRegressor", dict(domain=ML, coefficients=[1.0, 2.0, 3.0])
    bad = [("cycle", new, tree | dict(nodes_truenodeids=[0, 0])), ("branch", new, tree | dict(nodes_falsenodeids=[2, 1])),
           ("feature", new, tree | dict(nodes_featureids=[0, 3])), ("target", new, tree | dict(leaf_targetids=[0, 2])),
           ("root", new, tree | dict(tree_roots=[2])), ("short", new, tree | dict(nodes_trueleafs=[0])),
           ("sets", new, tree | dict(membership_values=numbers("v", 1, 2))),
           ("mode", before, old | dict(nodes_modes=["BRANCH_NEAR", "LEAF"])),
           ("twice", before, old | dict(nodes_nodeids=[0, 0])), ("nowhere", before, old | dict(nodes_truenodeids=[7, 0])),
           ("inner", before, old | dict(target_nodeids=[0])), ("sum", before, old | dict(aggregate_function="PROD")),
           ("width", "LinearRegressor", linear),
           ("post", "LinearRegressor", linear | dict(coefficients=[1.0, 2.0], post_transform="RELU")),
           ("labels", "LinearClassifier", linear | dict(coefficients=[1.0] * 4, classlabels_strings=["a", "b"])),
           ("norm", "Normalizer", dict(domain=ML, norm="L3")), ("scale", "Scaler", dict(domain=ML, scale=[1.0] * 3)),
           ("kernel", "SVMRegressor", linear | dict(kernel_type="COSINE", n_supports=1, support_vectors=[1.0, 2.0],
                                                    coefficients=[1.0], rho=[0.0])),
           ("maps", "ZipMap", dict(domain=ML, classlabels_int64s=[0, 1]))]
    return model([node(op, "x", name, "/" + name, **attributes) for name, op, attributes in bad],
                 [value("x", (3, 2))], " ".join(name for name, _, _ in bad), domains=[(ML, 5)])


MODELS = [sequences, sequence_errors, sequence_inputs, split_attribute, strings, string_errors, string_input, ml_errors]
