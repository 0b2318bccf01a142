"""Exporters that write one model, of modules.py's Tower, as PyTorch's do."""

import types
import warnings

TrainingMode = type("TrainingMode", (), {"PRESERVE": 0})


def export(module, values, path, *, dynamo, input_names, output_names, **settings):
    import onnx
    from onnx import TensorProto, helper
    if dynamo and module.module.fails:
        raise RuntimeError("step 2") from ValueError("a branch\nthat depends on data")
    if not dynamo:
        warnings.warn("PyTorch's own")
    prefix = "" if dynamo else "/module/"
    nodes = [helper.make_node("Gather", ["module.embed.weight", input_names[0]], [prefix + "output"], prefix + "embed/Gather"),
             helper.make_node("Identity", [prefix + "output"], [prefix + "d"], "node_detach"),
             helper.make_node("Mul", [prefix + "d", "module.gain"], [output_names[0]], "node_mul")]
    if not dynamo:
        nodes[1].attribute.append(helper.make_attribute("detached", 1))
    rows = "batch" if dynamo or module.module.fails != "fixed" else 4
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(input_names[0], TensorProto.INT64, [rows, 3])],
        [helper.make_tensor_value_info(output_names[0], TensorProto.FLOAT, [rows, 3, 2]),
         helper.make_tensor_value_info(input_names[0], TensorProto.INT64, [rows, 3])],
        [helper.make_tensor("module.embed.weight", TensorProto.FLOAT, [5, 2], [0.5] * 10),
         helper.make_tensor("module.gain", TensorProto.FLOAT, [2], [1, 2])])
    for name in ("module.embed.weight", "module.gain") if dynamo else ():
        graph.value_info.add(name=name).metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="PARAMETER")
    made = types.SimpleNamespace(exported_program=types.SimpleNamespace(module=lambda: None))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return made


def register_custom_op_symbolic(*_):
    pass


def unregister_custom_op_symbolic(*_):
    pass
