"""Writes tests/eval/ml: models of ai.onnx.ml with onnxruntime's results, in the layout of the ONNX suite.

    python3 tests/eval/make_ml.py        needs the onnx, onnxruntime, numpy, scikit-learn and skl2onnx packages

Models of scikit-learn, exported by skl2onnx, and single operators.  Each case is CASE/model.onnx and
CASE/test_data_set_0/{input,output}_K.pb.  The files are committed, so the test needs only nnaot-eval.  Where onnxruntime
differs from ONNX's reference implementation, or lacks the operator, the results are those of the latter.
"""

import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
import skl2onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn import datasets, ensemble, linear_model, pipeline, preprocessing, svm, tree

FOLDER = pathlib.Path(__file__).resolve().parent / "ml"
RANDOM = np.random.default_rng(0)


def write(name, model, given, reference=False):
    """given: {input: array}."""
    if reference:
        want = ReferenceEvaluator(model).run(None, given)
    else:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        want = session.run(None, given)
    data = FOLDER / name / "test_data_set_0"
    data.mkdir(parents=True)
    (FOLDER / name / "model.onnx").write_bytes(model.SerializeToString())
    for kind, values in (("input", given.values()), ("output", want)):
        for i, value in enumerate(values):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(value)).SerializeToString())


def case(name, op, inputs, n_outputs=1, version=3, reference=False, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = [f"y{i}" for i in range(n_outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, name="/" + op, domain="ai.onnx.ml", **attributes)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, inputs)],
        [onnx.ValueInfoProto(name=n) for n in outputs])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                  helper.make_opsetid("ai.onnx.ml", version)])
    write(name, model, dict(zip(names, inputs)), reference)


def trained(name, model, x, y, options=None):
    """Trains on x and y; the case has five rows."""
    model.fit(x, y)
    rows = x[::x.shape[0] // 5][:5].astype(np.float32)
    text = {id(model): options} if options else None
    exported = skl2onnx.to_onnx(model, rows, options=text, target_opset={"": 17, "ai.onnx.ml": 3})
    exported.graph.input[0].type.tensor_type.shape.dim[0].dim_value = len(rows)
    write(name, exported, {exported.graph.input[0].name: rows})


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    x, classes = datasets.load_iris(return_X_y=True)
    two = (classes > 0).astype(np.int64)
    width = x[:, 3] + x[:, 0]
    scores = {"zipmap": False}
    trained("logistic_regression", linear_model.LogisticRegression(max_iter=500), x, classes, scores)
    trained("logistic_regression_2", linear_model.LogisticRegression(max_iter=500), x, two, scores)
    trained("linear_regression", linear_model.LinearRegression(), x[:, :3], x[:, 2:])
    trained("scaled", pipeline.make_pipeline(preprocessing.StandardScaler(), preprocessing.Normalizer("l1"),
                                             linear_model.LinearRegression()), x, width)
    trained("normalizer_l2", preprocessing.Normalizer("l2"), x, None)
    trained("decision_tree", tree.DecisionTreeClassifier(max_depth=4, random_state=0), x, classes, scores)
    trained("tree_regressor", tree.DecisionTreeRegressor(max_depth=5, random_state=0), x, width)
    trained("random_forest", ensemble.RandomForestClassifier(5, max_depth=3, random_state=0), x, classes, scores)
    trained("forest_regressor", ensemble.RandomForestRegressor(5, max_depth=3, random_state=0), x, width)
    trained("boosting", ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), x, classes, scores)
    trained("boosting_2", ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0), x, two, scores)
    for kernel in ["linear", "rbf", "poly", "sigmoid"]:
        trained("svr_" + kernel, svm.SVR(kernel=kernel), preprocessing.scale(x)[::4], width[::4])
    trained("one_class", svm.OneClassSVM(), x[::4], None)

    rows = RANDOM.standard_normal((4, 3)).astype(np.float32)
    rows[1, 2] = np.nan
    case("imputer", "Imputer", [rows], imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    counts = np.array([[1, 7], [7, 3]], np.int64)
    case("imputer_int64", "Imputer", [counts], imputed_value_int64s=[5], replaced_value_int64=7)
    rows = RANDOM.standard_normal((4, 3)).astype(np.float32)
    rows[2] = 0
    case("normalizer_max", "Normalizer", [rows], norm="MAX", reference=True)
    case("scaler_int64", "Scaler", [counts], offset=[1.0, 2.0], scale=[0.5, 0.25])
    case("binarizer", "Binarizer", [rows], threshold=0.25)
    case("feature_vectorizer", "FeatureVectorizer", [rows, rows[:, :2]], inputdimensions=[2, 4], reference=True)
    case("array_feature_extractor", "ArrayFeatureExtractor", [rows, np.array([2, 0], np.int64)])
    case("array_feature_extractor_1d", "ArrayFeatureExtractor", [rows[0], np.array([[2, 0]], np.int64)], reference=True)
    coefficients = [float(c) for c in RANDOM.standard_normal(9)]
    for post in ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]:
        given = np.abs(rows) / 4 if post == "PROBIT" else rows
        weights = [abs(c) / 9 for c in coefficients] if post == "PROBIT" else coefficients
        intercepts = [0.1, 0.2, 0.3] if post == "PROBIT" else [0.0, 0.5, -0.5]
        case("classifier_" + post.lower(), "LinearClassifier", [given], 2, coefficients=weights, intercepts=intercepts,
             classlabels_ints=[4, 2, 9], post_transform=post, reference=True)
    case("classifier_one_score", "LinearClassifier", [rows], 2, coefficients=coefficients[:3], intercepts=[0.5],
         classlabels_ints=[3, 5], post_transform="LOGISTIC", reference=True)

    # x[0] <= 0 ? (x[1] > 0.5 ? 1 : 2) : 3, and x[2] != 0.25 ? 10 : 20, by mode and by function.
    nodes = dict(nodes_treeids=[0] * 5 + [1] * 3, nodes_nodeids=[0, 1, 2, 3, 4, 0, 1, 2],
                 nodes_featureids=[0, 1, 0, 0, 0, 2, 0, 0], nodes_values=[0.0, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0],
                 nodes_modes=["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_NEQ", "LEAF", "LEAF"],
                 nodes_truenodeids=[1, 3, 0, 0, 0, 1, 0, 0], nodes_falsenodeids=[2, 4, 0, 0, 0, 2, 0, 0],
                 target_treeids=[0, 0, 0, 1, 1], target_nodeids=[3, 4, 2, 1, 2], target_ids=[0, 0, 0, 0, 0],
                 target_weights=[1.0, 2.0, 3.0, 10.0, 20.0])
    points = np.array([[-1, 1, 0], [-1, 0, 0.25], [1, 0, 0.25], [0, 0.5, 7]], np.float32)
    for function in ["SUM", "AVERAGE", "MIN", "MAX"]:
        case("trees_" + function.lower(), "TreeEnsembleRegressor", [points], n_targets=1, base_values=[0.5],
             aggregate_function=function, **nodes)
    points[0, 0] = points[2, 2] = points[3, 1] = np.nan
    case("trees_missing", "TreeEnsembleRegressor", [points], n_targets=1,
         nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 0, 0, 0], **nodes)


if __name__ == "__main__":
    main()
