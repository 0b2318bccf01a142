"""Exports a module of PyTorch to ONNX so that nnaot trains it as PyTorch would.

    from nnaot_export import export
    export(module, example, "model.onnx")          example: a tensor, a tuple of inputs, or a dict of them by name

The module is exported in training mode, with the batch symbolic and nothing folded: by torch.export (dynamo=True), or if
that fails, by TorchScript (dynamo=False).  Parts of a module in training mode may be in evaluation mode: they are exported so.
Inputs are called as forward() calls them; outputs as a dict's keys, else `output`, or `output_0`, `output_1`, …; a part of a
part is `KEY_0`, `KEY_1`, ….

The batch is dimension 0 of every input, or what batch_dims says: with

    export(module, (x, table), "model.onnx", batch_dims={"x": 1, "table": None})

it is dimension 1 of x, and the table, which has none, keeps its shape.

A file of torch.export has parameters, buffers and padding rows in its metadata; one of TorchScript gets them from here, and
both which parameters have no requires_grad.

Needs torch and onnx.  `nnaot-export` is the command.
"""

import contextlib
import inspect
import io
import logging
import os
import pathlib
import tempfile
import traceback
import warnings

import torch

EXPORTERS = ("dynamo", "torchscript")
LARGEST = 1_800_000_000  # bytes of weights in the file itself; above, they go into a file beside it


class ExportError(RuntimeError):
    pass


class ExportWarning(UserWarning):
    pass


def export(module, example, path, *, batch_dims=None, output_names=None, train=True, opset=None, batch_name="batch",
           exporters=EXPORTERS, verbose=False):
    """Writes `path` (and `path`.data, where weights are large) and returns the exporter that succeeded first.

    An ExportWarning has the reason why the first exporter failed, and each line of the module that TorchScript traced for the
    example alone, such as a branch.  With verbose, all output of exporters goes to stderr.  The module stays as it is: the mode
    of each part, its buffers, and whether it caches keys and values.
    """
    path = pathlib.Path(path)
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"what is to be exported is no torch.nn.Module but of type {type(module).__name__}")
    args = _arguments(module, example)
    axes = _batch_axes(args, batch_dims or {})
    modes = {part: part.training for part in module.modules()}
    use_cache = getattr(getattr(module, "config", None), "use_cache", None)
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    with _folder_beside(path) as folder:
        try:
            if module.training != train:
                module.train(train)
            if use_cache:
                module.config.use_cache = False
            names = _output_names(_run(module, args), output_names)
            _restore(module, buffers)
            exporter, noted = _export(module, args, axes, folder / path.name, names, opset, batch_name, exporters,
                                      verbose)
        finally:
            _restore(module, buffers)
            for part, mode in modes.items():
                part.training = mode
            if use_cache:
                module.config.use_cache = use_cache
        _finish(module, folder / exporter / path.name, buffers, exporter)
        # The model comes last: it is never there without its data.
        for file in sorted((folder / exporter).iterdir(), key=lambda file: file.name == path.name):
            os.replace(file, path.parent / file.name)
    for note in noted:
        warnings.warn(note, ExportWarning, stacklevel=2)
    return exporter


@contextlib.contextmanager
def _folder_beside(path):
    """A temporary folder beside `path`.  A model keeps its name in it, since it holds the name of its data."""
    if path.is_dir():
        raise ExportError(f"'{path}' is a folder")
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
    except OSError as e:
        raise ExportError(f"cannot write into the folder '{path.parent}': {e.strerror}") from None
    with folder as name:
        yield pathlib.Path(name)


def _arguments(module, example):
    """The example by the names of forward()'s arguments, in order."""
    if isinstance(example, dict):
        return dict(example)
    values = example if isinstance(example, (tuple, list)) else (example,)
    names = [p.name for p in inspect.signature(module.forward).parameters.values()]
    if len(values) > len(names):
        raise ExportError(f"forward() takes {len(names)} inputs, the example has {len(values)}")
    return dict(zip(names, values))


def _batch_axes(args, batch_dims):
    """The batch's dimension of each input that has one."""
    axes = {name: 0 for name, v in args.items() if torch.is_tensor(v) and v.dim()}
    wrong = []
    for name, axis in batch_dims.items():
        ndim = args[name].dim() if torch.is_tensor(args.get(name)) else None
        if name not in args:
            wrong.append(f"there is no input '{name}'")
        elif axis is None:
            axes.pop(name, None)
        elif not isinstance(axis, int):
            wrong.append(f"the dimension of '{name}' has to be an integer or None, not {axis!r}")
        elif ndim is None:
            wrong.append(f"'{name}' is no tensor")
        elif not -ndim <= axis < ndim:
            wrong.append(f"'{name}' has no dimension {axis}")
        else:
            axes[name] = axis % ndim
    sizes = {name: args[name].shape[axis] for name, axis in axes.items()}
    if not wrong and len(set(sizes.values())) > 1:
        wrong.append("the batch has " + ", ".join(f"{size} rows in '{name}'" for name, size in sizes.items())
                     + ": it is another dimension of an input, or an input has none")
    if wrong:
        inputs = ", ".join(f"{name} {list(v.shape)}" if torch.is_tensor(v) else name for name, v in args.items())
        raise ExportError("\n  ".join([f"the batch's dimensions do not fit the example's inputs, {inputs}", *wrong]))
    return axes


def _run(module, args):
    try:
        with torch.no_grad():
            return module(**args)
    except Exception as e:
        raise ExportError(f"the module does not run on its example: {type(e).__name__}: {e}") from e


def _restore(module, buffers):
    with torch.no_grad():
        for name, b in module.named_buffers():
            b.copy_(buffers[name])


def _output_names(out, given):
    names = [name for name, _ in _results(out)]
    if not given:
        return names
    if len(given) != len(names) or len(set(given)) != len(given):
        raise ExportError(f"the outputs of the module are {', '.join(names)}; these are no names for them: {', '.join(given)}")
    return given


def _results(out, name=""):
    """The results with their names in order, also those in dicts and tuples of dicts and tuples, without None."""
    if out is None:
        return []
    if hasattr(out, "keys"):
        parts = [(f"{name}_{key}" if name else str(key), v) for key, v in out.items()]
    elif isinstance(out, (tuple, list)) and (name or sum(v is not None for v in out) > 1):
        parts = [(f"{name or 'output'}_{i}", v) for i, v in enumerate(v for v in out if v is not None)]
    elif isinstance(out, (tuple, list)):
        parts = [(name, v) for v in out]
    else:
        return [(name or "output", out)]
    return [result for key, v in parts for result in _results(v, key)]


class _ByPosition(torch.nn.Module):
    """The module called with tensors in order, giving tensors in order, as exporters want it."""

    def __init__(self, module, names):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *values):
        return tuple(v for _, v in _results(self.module(**dict(zip(self.names, values)))))


def _export(module, args, axes, path, names, opset, batch_name, exporters, verbose):
    """The first exporter that succeeds, and notes for the user.  Its files are in a folder of its name, beside `path`."""
    whole, values = _ByPosition(module, list(args)), tuple(args.values())
    whole.training = module.training
    large = sum(p.numel() * p.element_size() for p in module.parameters()) > LARGEST
    more = {"opset_version": opset} if opset else {}
    failed = []
    for exporter in exporters:
        made = path.parent / exporter / path.name
        made.parent.mkdir()
        try:
            with contextlib.nullcontext([]) if verbose else _silence() as warned:
                if exporter == "dynamo":
                    batch = torch.export.Dim(batch_name)
                    shapes = tuple({axes[k]: batch} if k in axes else None for k in args)
                    torch.onnx.export(whole, values, str(made), dynamo=True, optimize=False, external_data=large,
                                      verbose=verbose, input_names=list(args), output_names=names, dynamic_shapes=(shapes,),
                                      **more)
                else:
                    torch.onnx.export(whole, values, str(made), dynamo=False, do_constant_folding=False,
                                      training=torch.onnx.TrainingMode.PRESERVE, input_names=list(args), output_names=names,
                                      dynamic_axes={k: {axis: batch_name} for k, axis in axes.items()}, **more)
            return exporter, failed + _traced_once(warned)
        except Exception as e:  # whatever an exporter raises: the other may do better
            if verbose:
                traceback.print_exception(e)
            failed.append(f"{exporter} cannot export this module: {_reason(e)}")
    raise ExportError("\n  ".join(["no exporter of PyTorch can export the module", *failed]))


@contextlib.contextmanager
def _silence():
    """Nothing is printed, by Python or by C++, or logged.  Yields a list for the warnings."""
    disabled, kept = logging.root.manager.disable, []
    logging.disable()
    try:
        with (open(os.devnull, "w") as nowhere, warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(io.StringIO())):
            warnings.simplefilter("always")
            for descriptor in (1, 2):
                with contextlib.suppress(OSError):  # it may be closed
                    kept.append((os.dup(descriptor), descriptor))
                    os.dup2(nowhere.fileno(), descriptor)
            yield warned
    finally:
        for copy, descriptor in kept:
            os.dup2(copy, descriptor)
            os.close(copy)
        logging.disable(disabled)


def _traced_once(warned):
    """A note for each line of the module, not of PyTorch, that TorchScript recorded as it ran on the example."""
    own = os.path.dirname(torch.__file__)
    lines = {(w.filename, w.lineno): str(w.message).split(". ")[0].split("\n")[0] for w in warned
             if issubclass(w.category, torch.jit.TracerWarning) and not w.filename.startswith(own)}
    return [f"{file}:{line}: the model is right for the example alone if other data take another way here: {text}"
            for (file, line), text in lines.items()]


def _reason(e):
    """The first line of the first cause: the exception itself names a step of the exporter."""
    while e.__cause__ is not None:
        e = e.__cause__
    lines = str(e).strip().splitlines()
    return lines[0] if lines else type(e).__name__


def _weight_kinds(module, names, exporter):
    """Kinds of initializers for nnaot: of all in a file of TorchScript, which has none; else of parameters that are not
    trained."""
    parameters, buffers = dict(module.named_parameters(remove_duplicate=False)), dict(module.named_buffers())
    padding = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, torch.nn.Embedding):
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
            yield name, kind if row is None else f"{kind} padding_idx={row}"


def _finish(module, path, buffers, exporter):
    """Takes the wrapper's prefix from names, restores the buffers that exporting has changed, and adds the kinds of weights."""
    import onnx
    from onnx import numpy_helper
    model = onnx.load(path, load_external_data=False)
    own = {name for name, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers())}

    taken = {name for node in _nodes(model.graph) for name in (node.name, *node.output)}

    def plain(name):
        if name.startswith("/module/") and name.removeprefix("/module") not in taken:  # as TorchScript calls nodes and results
            return name.removeprefix("/module")
        return name.removeprefix("module.") if name.removeprefix("module.") in own else name

    for graph_value in (*model.graph.initializer, *model.graph.value_info):
        graph_value.name = plain(graph_value.name)
    for node in _nodes(model.graph):
        node.name = plain(node.name)
        for names in node.input, node.output:
            for i, name in enumerate(names):
                names[i] = plain(name)
    for tensor in model.graph.initializer:
        held = buffers.get(tensor.name)
        if held is not None and tensor.data_location != onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(held.cpu().numpy(), str(tensor.name)))
    for name, kind in _weight_kinds(module, [t.name for t in model.graph.initializer], exporter):
        model.metadata_props.add(key=f"nnaot.weight/{name}", value=kind)
    onnx.save(model, path)


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
