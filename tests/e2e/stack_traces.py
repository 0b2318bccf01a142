"""Removes the stack trace of each node from a model of torch.export: most of a file, with paths of one machine."""

import onnx


def remove(path):
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key != "pkg.torch.onnx.stack_trace"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)
