"""Prepares an exporter's file for nnaot: names, buffers, kinds of weights, stops of gradients."""

import re

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from .exporters import DETACHED

CALL = "pkg.torch.onnx.fx_node"  # metadata of a node in files of torch.export
DETACH = "%detach : call_function[target=torch.ops.aten.detach.default](args = (), kwargs = {})"

INPUT = "nnaot_input_"
ATTENTION, TRAINING = "aten.scaled_dot_product_attention", "nnaot_training"


def temporary_names(inputs, outputs):
    """For the exporter: names that no value inside the model has."""
    return [f"{INPUT}{i}" for i in range(len(inputs))], [f"nnaot_output_{i}" for i in range(len(outputs))]


def finish(module, path, inputs, outputs, held, exporter):
    """inputs: tensors by name; outputs: names; held: values that exporting may have changed, by name."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    own_outputs(graph)
    rename(graph, new_names(module, graph, inputs, outputs))
    for node in nodes_of(graph):
        hide_scores(node)
        drop_bias(node)
        for attribute in node.attribute:
            if attribute.name == DETACHED:
                node.attribute.remove(attribute)
                node.metadata_props.add(key=CALL, value=DETACH)
                break
        if node.op_type == "Dropout" and len(node.input) == 2:  # of attention, which drops out whenever it has a ratio
            node.input.append(TRAINING)
            if TRAINING not in {t.name for t in graph.initializer}:
                graph.initializer.append(helper.make_tensor(TRAINING, onnx.TensorProto.BOOL, [], [True]))
    for tensor in graph.initializer:
        value = held.get(tensor.name)
        if value is not None and tensor.data_location != onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(value.cpu().numpy(), str(tensor.name)))
    for name, kind in weight_kinds(module, [t.name for t in graph.initializer], exporter):
        model.metadata_props.add(key=f"nnaot.weight/{name}", value=kind)
    onnx.save(model, path)


def graphs_of(graph):
    """The graph, and those in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from graphs_of(inner)


def nodes_of(graph):
    for inner in graphs_of(graph):
        yield from inner.node


def hide_scores(node):
    """Sets attention's hidden scores to -inf instead of the lowest number, which gives equal weights to a row that is hidden
    whole."""
    if node.op_type != "Constant" or not any(ATTENTION in p.value for p in node.metadata_props):
        return
    for attribute in node.attribute:
        value = numpy_helper.to_array(attribute.t) if attribute.name == "value" else np.zeros(0)
        if value.size == 1 and value.dtype.kind == "f" and value == np.finfo(value.dtype).min:
            attribute.t.CopyFrom(numpy_helper.from_array(np.full_like(value, -np.inf)))


def drop_bias(node):
    """Drops the zeros that torch.export's file adds in conv3d without bias: they have two dimensions, which no Conv takes."""
    call = next((p.value for p in node.metadata_props if p.key == CALL), "")
    if node.op_type == "Conv" and len(node.input) == 3 and re.search(r"aten\.conv3d\.\w+\]\(args = \(%\w+, %\w+(, None|\))", call):
        del node.input[2]


# -- Names -----------------------------------------------------------------------------------

def own_outputs(graph):
    """Gives an output that is also an input, a weight or another output a value of its own."""
    taken = {v.name for v in (*graph.input, *graph.initializer)}
    for i, output in enumerate(graph.output):
        if output.name in taken:
            name = f"nnaot_result_{i}"
            graph.node.add(op_type="Identity", name=f"node_{name}", input=[output.name], output=[name])
            output.name = name
        taken.add(output.name)


def new_names(module, graph, inputs, outputs):
    """New names by old name: of inputs, outputs and weights, and of nodes and values inside that had one of these."""
    values = {v.name for v in (*graph.input, *graph.initializer)} | {name for n in nodes_of(graph) for name in n.output}
    own = {name for name, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers())}
    new = {v.name: name for v, name in zip(graph.output, outputs)}
    weights, given = {t.name for t in graph.initializer}, list(inputs)
    for i, name in enumerate(v.name for v in graph.input if v.name not in weights):
        new[name] = given[int(name.removeprefix(INPUT)) if name.startswith(INPUT) else i]
    chosen = set(new.values())
    first = {id(p): name for name, p in module.named_parameters()}  # of the names of a tied weight
    tied = {name: first[id(p)] for name, p in module.named_parameters(remove_duplicate=False)}
    for name in [t.name for t in graph.initializer]:
        plain = name.removeprefix("module.")
        plain = tied.get(plain, plain)
        if plain in own and plain not in chosen:
            new[name] = plain
            chosen.add(plain)
    taken = values | chosen
    for name in sorted(values):
        if name in new:
            continue
        plain = name.removeprefix("/module") if name.startswith("/module/") else name  # as TorchScript calls results
        if plain != name and plain not in taken or name in chosen:
            fresh, i = plain, 1
            while fresh in taken:
                fresh, i = f"{plain}_{i}", i + 1
            new[name] = fresh
            taken.add(fresh)
    return new


def rename(graph, new):
    for inner in graphs_of(graph):
        for value in (*inner.input, *inner.output, *inner.initializer, *inner.value_info):
            value.name = new.get(value.name, value.name)
    for node in nodes_of(graph):
        if node.name.startswith("/module/"):
            node.name = node.name.removeprefix("/module")
        for names in node.input, node.output:
            for i, name in enumerate(names):
                names[i] = new.get(name, name)


# -- Kinds of weights ------------------------------------------------------------------------

def weight_kinds(module, names, exporter):
    """Kinds of all initializers in a file of TorchScript, which has none; else of untrained parameters."""
    parameters, buffers = dict(module.named_parameters(remove_duplicate=False)), dict(module.named_buffers())
    padding, looked_up = {}, set()
    for prefix, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, torch.nn.Embedding):
            looked_up.add(id(part.weight))
            padding.setdefault(f"{prefix}.weight" if prefix else "weight", part.padding_idx)
    shared = {}  # of tables that several modules hold: only a padding row that all have
    for name, row in padding.items():
        shared.setdefault(id(parameters.get(name)), set()).add(row)
    for name in names:
        p = parameters.get(name)
        if p is not None and not p.requires_grad:
            yield name, "FROZEN"
        elif exporter == "torchscript":
            rows = shared.get(id(p), {None}) if p is not None else {None}
            row = next(iter(rows)) if len(rows) == 1 else None
            kind = "PARAMETER" if p is not None else "BUFFER" if name in buffers else "CONSTANT"
            kind += " embedding" if id(p) in looked_up else ""
            yield name, kind if row is None else f"{kind} padding_idx={row}"


# -- Possible mistakes -----------------------------------------------------------------------

def fixed_batch(path, axes, batch):
    """Inputs of the file whose batch is not symbolic, as text, or None."""
    wrong = []
    for v in onnx.load(path, load_external_data=False).graph.input:
        dims = v.type.tensor_type.shape.dim
        if v.name in axes and dims[axes[v.name]].dim_param != batch:
            dim = dims[axes[v.name]]
            wrong.append(f"dimension {axes[v.name]} of '{v.name}' is {dim.dim_param or dim.dim_value}")
    return f"the batch is not symbolic: {', '.join(wrong)}" if wrong else None
