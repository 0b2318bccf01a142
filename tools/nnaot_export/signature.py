"""The inputs and results of a module by name.

An input has the name of its argument of forward(); a tensor in a list, tuple or dict of an argument has its place appended:
xs_0, batch_mask.  Arguments that are no tensors keep the values of the example.
"""

import collections.abc
import inspect

import torch

from .errors import ExportError


class Inputs:
    """tensors: those of the example by name; axes: the batch's dimension by name, of tensors with one."""

    def __init__(self, module, example, batch_dims):
        self._signature = inspect.signature(module.forward)
        self._bound = self._bind(example)
        self.tensors = {}
        for name, v in self._arguments():
            collect(name, v, self.tensors)
        # Exporters make one input of a tensor that is given twice.
        self.tensors = {name: v.detach().clone() for name, v in self.tensors.items()}
        if not self.tensors:
            raise ExportError("there is no tensor among the example's inputs")
        self.axes = batch_axes(self.tensors, batch_dims)

    def copies(self):
        """Copies of the tensors in order: forward() may change its arguments."""
        return tuple(v.detach().clone() for v in self.tensors.values())

    def _bind(self, example):
        try:
            if isinstance(example, collections.abc.Mapping):
                return self._signature.bind(**example)
            return self._signature.bind(*(example if isinstance(example, (tuple, list)) else (example,)))
        except TypeError as e:
            takes = ", ".join(str(p).split(":")[0].split("=")[0].strip() for p in self._signature.parameters.values())
            raise ExportError(f"the example does not fit forward({takes}): {e}") from None

    def _arguments(self):
        """Arguments of forward() by name, those of **kwargs by their own name."""
        for name, v in self._bound.arguments.items():
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                yield from v.items()
            else:
                yield name, v

    def call(self, module, tensors):
        """Runs the module on other tensors of these names."""
        bound = self._signature.bind_partial()
        rest = {name: replaced(name, v, tensors) for name, v in self._arguments()}
        for name, p in self._signature.parameters.items():
            if name in rest:
                bound.arguments[name] = rest.pop(name)
            elif p.kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = rest
        return module(*bound.args, **bound.kwargs)


def collect(name, v, tensors):
    if torch.is_tensor(v) and name in tensors:
        raise ExportError(f"two inputs would be called '{name}': rename an argument of forward()")
    if torch.is_tensor(v):
        tensors[name] = v
    for key, part in parts(v):
        collect(f"{name}_{key}", part, tensors)


def replaced(name, v, tensors):
    if torch.is_tensor(v):
        return tensors[name]
    made = [(key, replaced(f"{name}_{key}", part, tensors)) for key, part in parts(v)]
    if not made:
        return v
    if isinstance(v, collections.abc.Mapping):
        return dict(made)
    return type(v)(*(part for _, part in made)) if hasattr(v, "_fields") else type(v)(part for _, part in made)


def parts(v):
    if isinstance(v, collections.abc.Mapping):
        return list(v.items())
    return list(enumerate(v)) if isinstance(v, (tuple, list)) else []


def batch_axes(tensors, batch_dims):
    axes = {name: 0 for name, v in tensors.items() if v.dim()}
    wrong = []
    for name, axis in batch_dims.items():
        ndim = tensors[name].dim() if name in tensors else 0
        if name not in tensors:
            wrong.append(f"there is no input '{name}'")
        elif axis is None:
            axes.pop(name, None)
        elif not isinstance(axis, int):
            wrong.append(f"the dimension of '{name}' has to be an integer or None, not {axis!r}")
        elif not -ndim <= axis < ndim:
            wrong.append(f"'{name}' has no dimension {axis}")
        else:
            axes[name] = axis % ndim
    sizes = {name: tensors[name].shape[axis] for name, axis in axes.items()}
    if not wrong and len(set(sizes.values())) > 1:
        wrong.append("the batch has " + ", ".join(f"{size} rows in '{name}'" for name, size in sizes.items())
                     + ": it is another dimension of an input, or an input has none")
    if wrong:
        inputs = ", ".join(f"{name} {list(v.shape)}" for name, v in tensors.items())
        raise ExportError("\n  ".join([f"the batch's dimensions do not fit the example's inputs, {inputs}", *wrong]))
    return axes


def results(out, name=""):
    """Tensors with their names in order, also those in nested dicts and tuples: keys of a dict; output, or
    output_0, output_1, … of a tuple; KEY_0, KEY_1, … of a part.  Caches of keys and values, numbers and None do not count."""
    if torch.is_tensor(out):
        return [(name or "output", out)]
    if hasattr(out, "_asdict"):
        out = out._asdict()
    if isinstance(out, collections.abc.Mapping):
        parts = [(f"{name}_{key}" if name else str(key), v) for key, v in out.items()]
    elif isinstance(out, (tuple, list)) and (name or sum(v is not None for v in out) > 1):
        parts = [(f"{name or 'output'}_{i}", v) for i, v in enumerate(v for v in out if v is not None)]
    elif isinstance(out, (tuple, list)):
        parts = [(name, v) for v in out]
    else:
        parts = []
    return [result for key, v in parts for result in results(v, key)]


def output_names(out, inputs, given):
    """Names of the results that no input has."""
    names = [name for name, _ in results(out)]
    if not names:
        raise ExportError(f"forward() returns no tensor, but {type(out).__name__}")
    if given and (len(given) != len(names) or len(set(given)) != len(given)):
        raise ExportError(f"the outputs of the module are {', '.join(names)}; these are no names for them: {', '.join(given)}")
    if given and set(given) & set(inputs):
        raise ExportError(f"an input is called '{next(name for name in given if name in inputs)}', too")
    taken = {*names, *inputs}
    for i, name in enumerate(names):
        while names[i] in inputs or names[i] in names[:i]:
            names[i] = f"{name}_out" if f"{name}_out" not in taken else f"{names[i]}_"
    return given or names
