"""Exports a PyTorch module to ONNX so that nnaot trains it as PyTorch would.

    from nnaot_export import export
    export(module, example, "model.onnx")          example: a tensor, a tuple of inputs, or a dict of them by name

The module is exported in training mode, with the batch symbolic and without constant folding: by torch.export
(dynamo=True), or if that fails, by TorchScript (dynamo=False).  Parts in evaluation mode of a module in training mode are
exported in that mode.  Inputs have the names of forward()'s arguments; outputs are a dict's keys, else `output`, or
`output_0`, `output_1`, …; a part of a part is `KEY_0`, `KEY_1`, ….

The batch is dimension 0 of every input, unless batch_dims differs: with

    export(module, (x, table), "model.onnx", batch_dims={"x": 1, "table": None})

it is dimension 1 of x, and the table, which has none, keeps its shape.

A file of torch.export has parameters, buffers and padding rows in its metadata; this package adds them to a file of
TorchScript, and to both the list of parameters without requires_grad.  The gradient stops as in the module: at x.detach(),
x.data and results of torch.no_grad().

The file is evaluated, and must give the module's results: for the example, another number of rows and other values.

Needs torch and onnx.  `nnaot-export` is the command.

    signature.py   inputs and results by name
    exporters.py   the calls of PyTorch's exporters
    checks.py      properties of a module that a file cannot hold
    file.py        names, buffers, kinds of weights and stops of gradients in the file
    compare.py     the file and the module on the same data
    experts.py     mixtures of experts in a form that exporters know
    recorded.py    in-place changes, torch.no_grad() and dropout in a form that exporters record
    silence.py     exporters without their output
    operators.py, random.py    for onnx's evaluator
"""

import contextlib
import os
import pathlib
import tempfile
import traceback
import warnings

import torch

from . import checks
from .errors import ExportError, ExportWarning
from .experts import without_loops
from .exporters import EXPORTERS, reason
from .recorded import AsRecorded
from .signature import Inputs, output_names, results
from .silence import silence, traced_once

__all__ = ["ExportError", "ExportWarning", "export"]

LARGEST = 1_800_000_000  # most bytes of weights in the file itself; more go into a file beside it

# Settings of transformers' models, and their values for exporters: no caches of keys and values as results, and experts by
# products with each token's weights; the default, sorted tokens and groups of computed sizes, cannot be exported.
EXPORTED = {"use_cache": False, "_experts_implementation_internal": "batched_mm"}


def export(module, example, path, *, batch_dims=None, output_names=None, train=True, opset=None, batch_name="batch",
           exporters=("dynamo", "torchscript"), compare=True, verbose=False, log=None):
    """Writes `path` (and `path`.data, if weights are large) and returns the first exporter that succeeded.

    ExportWarnings give the reason of the first exporter's failure, and properties of the module that the file lacks.  With
    verbose, all output of exporters goes to stderr; without compare, the file is not evaluated; log is called with the text of
    each step, as it begins.  The module is not changed: the mode
    of each part, its buffers and parameters, and its settings (EXPORTED); only a cache that forward() makes of a buffer stays.
    """
    path = pathlib.Path(path)
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"the exported object is no torch.nn.Module but of type {type(module).__name__}")
    module = _unwrapped(module)
    inputs = Inputs(module, example, batch_dims or {})
    modes = {part: part.training for part in module.modules()}
    checks.uninitialized(module)
    held = {name: v.detach().clone() for name, v in _untrained(module)}
    settings = _settings(module)
    with _folder_beside(path) as folder:
        try:
            for config, key, value in settings:
                setattr(config, key, EXPORTED[key])
            if module.training != train or _own_train(module):
                module.train(train)
            names, notes, own = _run(module, inputs, held, output_names)
            exporter, more = _export(module, inputs, folder / path.name, names, opset, batch_name, exporters, held, own,
                                     compare, verbose, log or (lambda step: None))
        finally:
            _restore(module, held)
            for part, mode in modes.items():
                part.training = mode
            for config, key, value in settings:
                setattr(config, key, value)
        # The model is moved last: it is never there without its data.
        for file in sorted((folder / exporter).iterdir(), key=lambda file: file.name == path.name):
            os.replace(file, path.parent / file.name)
    for note in notes + more:
        warnings.warn(note, ExportWarning, stacklevel=2)
    return exporter


def _unwrapped(module):
    """The user's own module inside the wrappers of torch.compile and of data parallelism."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            module = module.module
        else:
            return module


def _own_train(module):
    """Whether a part of the module overrides train(), such as a normalization that stays frozen."""
    return any(type(part).train is not torch.nn.Module.train for part in module.modules())


def _settings(module):
    """(config, key, value) of the settings that exporters need otherwise."""
    configs = {id(config): config for part in module.modules() if (config := getattr(part, "config", None)) is not None}
    return [(config, key, vars(config)[key]) for config in configs.values() for key in EXPORTED
            if hasattr(config, "__dict__") and vars(config).get(key)]


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


# -- The module ------------------------------------------------------------------------------

def _run(module, inputs, held, given):
    """Names of the outputs, notes for the user, and ids of the parameters with gradients other than those of forward()."""
    try:
        versions = {name: p._version for name, p in module.named_parameters()}
        with torch.enable_grad(), AsRecorded() as recorded:
            out = inputs.call(module, dict(zip(inputs.tensors, inputs.copies())))
    except ExportError:
        raise
    except Exception as e:
        raise ExportError(f"the module does not run on its example: {type(e).__name__}: {e}") from e
    checks.refuse(module, versions)
    # A buffer that forward() gives another shape, such as a table of positions, is a cache: the file and the module keep it.
    held.update({name: v.detach().clone() for name, v in module.named_buffers() if name not in held or v.shape != held[name].shape})
    names = output_names(out, inputs.tensors, given)
    notes = [f"the output '{key}' is called '{name}': an input has its name"
             for name, (key, _) in zip(names, results(out)) if name != key and not given]
    notes += [f"the parameter or buffer '{name}' is called 'module.{name}': an input or output has its name"
              for name in {**dict(module.named_parameters()), **held} if name in names or name in inputs.tensors]
    functions, hooks, own = checks.own_gradients(module, [v for _, v in results(out)], recorded)
    notes += checks.notes(module, functions, hooks, recorded, versions, held)
    _restore(module, held)
    return names, notes, own


def _untrained(module):
    """Buffers and parameters without requires_grad, by name: forward() may change them."""
    return [*module.named_buffers(), *((name, p) for name, p in module.named_parameters() if not p.requires_grad)]


def _restore(module, held):
    with torch.no_grad():
        for name, v in _untrained(module):
            if name in held:
                v.copy_(held[name])


# -- The file --------------------------------------------------------------------------------

def _export(module, inputs, path, names, opset, batch, exporters, held, own, compare, verbose, log):
    """The first exporter that succeeds, and notes for the user.  Its files are in a folder of its name, beside `path`."""
    from . import file
    large = sum(p.numel() * p.element_size() for p in module.parameters()) > LARGEST
    opset = {"opset_version": _checked(opset)} if opset else {}
    failed = []
    for exporter in exporters:
        made = path.parent / exporter / path.name
        made.parent.mkdir()
        temporary = file.temporary_names(inputs.tensors, names)
        log(f"exporting by {exporter}")
        try:
            with contextlib.nullcontext([]) if verbose else silence() as warned, without_loops(module):
                program = EXPORTERS[exporter](module, inputs, made, temporary, batch, large, opset, verbose)
        except Exception as e:  # whatever an exporter raises: the other may do better
            if verbose:
                traceback.print_exception(e)
            failed.append(f"{exporter} cannot export this module: {reason(e)}")
            continue
        finally:
            _restore(module, held)
        file.finish(module, made, inputs.tensors, names, held, exporter)
        notes, wrong = traced_once(warned), file.fixed_batch(made, inputs.axes, batch)
        if not wrong and compare:
            wrong = _compared(module, inputs, made, exporter, program, held, own, notes, log)
        if not wrong:
            return exporter, failed + notes
        failed += [f"the file of {exporter} is not the module: {wrong}", *notes]
    if len(failed) == 1:
        raise ExportError(failed[0])
    raise ExportError("\n  ".join(["no exporter of PyTorch can export the module", *failed]))


def _compared(module, inputs, made, exporter, program, held, own, notes, log):
    """The difference of the file, or of the program that it was made from, or None.  A failed comparison becomes a note."""
    from . import compare

    def run(tensors, program=None, use=list):
        """use() of the results in order, of the module or of a program that takes tensors in order."""
        try:
            return use(program(*tensors.values()) if program else [v for _, v in results(inputs.call(module, tensors))])
        finally:
            _restore(module, held)

    def made_program():
        try:
            with silence():
                return program()
        finally:
            _restore(module, held)

    def noted(compared, difference, *args):
        try:
            return difference(*args)
        except compare.NotCompared as e:
            notes.append(f"{compared} the file of {exporter} have not been compared with the module's: {e}")
            if isinstance(e, compare.Unrepeatable):
                raise

    with contextlib.suppress(compare.Unrepeatable):
        return (noted("results of", compare.difference, module, made, inputs.tensors, inputs.axes, run, notes, log)
                or noted("gradients of", compare.gradient_difference, module, made_program, inputs.tensors, run, own, log))
    return None


def _checked(opset):
    import onnx
    newest = onnx.defs.onnx_opset_version()
    if not 7 <= opset <= newest:
        raise ExportError(f"there is no version {opset} of ONNX's operators: 7 to {newest}")
    return opset
