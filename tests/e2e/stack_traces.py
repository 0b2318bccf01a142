"""Takes out of a model where in which files torch.export met each node: most of a file, and of one machine."""

import onnx


def remove(path):
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key != "pkg.torch.onnx.stack_trace"]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)
