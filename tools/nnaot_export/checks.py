"""Properties of a module that a file cannot hold: an error if training would be wrong at once, else a note for the user."""

import torch

from .errors import ExportError


def uninitialized(module):
    lazy = ", ".join(name for name, v in (*module.named_parameters(), *module.named_buffers()) if torch.nn.parameter.is_lazy(v))
    if lazy:
        raise ExportError(f"{lazy}: no shape yet; run the module on an example before it is exported")


def refuse(module, versions):
    """versions: of each parameter before forward() runs."""
    changed = ", ".join(name for name, p in module.named_parameters() if p.requires_grad and p._version != versions[name])
    if changed:
        raise ExportError(f"forward() changes parameters, {changed}, which training with a file cannot do")
    scaled = ", ".join(name for name, part in module.named_modules()
                       if isinstance(part, torch.nn.Embedding) and part.scale_grad_by_freq)
    if scaled:
        raise ExportError(f"scale_grad_by_freq of {scaled} is not supported")


def notes(module, functions, hooks, recorded, versions, held):
    """held: buffers and untrained parameters before forward() runs."""
    found = ((functions, "the gradients of {} are the module's own: in the file they are those of forward()"),
             (hooks, "hooks of gradients are not in the file: {}"),
             (_averaged(module), "running statistics of {} are averages of all steps (momentum=None), "
              "in the file of the last ones"),
             (_updated(module, recorded, versions, held), "forward() changes {}: training with the file leaves them as they are"))
    return [text.format(", ".join(names)) for names, text in found if names]


def own_gradients(module, outputs, recorded):
    """Gradients that differ from those of forward(): the names of torch.autograd.Functions, except PyTorch's own; the places
    of x.register_hook(), with parameters and parts that have hooks; and the ids of the parameters with such gradients."""
    functions, starts = set(), [node for nodes in recorded.hooked.values() for node in nodes]
    for node in nodes_of_backward(v.grad_fn for v in outputs):
        function = getattr(node, "_forward_cls", None)
        if function is None:
            continue
        if not function.__module__.startswith("torch."):
            functions.add(function.__name__)
            starts.append(node)
        elif function.__name__ == "BackwardHookFunction":
            starts.append(node)
    hooked = [name for name, p in module.named_parameters() if p._backward_hooks or p._post_accumulate_grad_hooks]
    parts = [name or "the module" for name, part in module.named_modules() if part._backward_hooks or part._backward_pre_hooks]
    reached = {id(node.variable) for node in nodes_of_backward(starts) if hasattr(node, "variable")}
    return sorted(functions), [*sorted(recorded.hooked), *hooked, *parts], reached | {id(module.get_parameter(n)) for n in hooked}


def nodes_of_backward(starts):
    seen, left = set(), list(starts)
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [before for before, _ in node.next_functions]
    return seen


def _updated(module, recorded, versions, held):
    """Buffers and parameters that forward() changes, except those that training with the file updates, too.  A parameter may
    be changed to the value that it has, as an average of equals is."""
    statistics = {id(b) for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
                  for b in part.buffers(recurse=False)}
    return ([name for name, b in module.named_buffers() if id(b) not in statistics and not torch.equal(b, held[name])]
            + [name for name, p in module.named_parameters() if id(p) in recorded.changed or p._version != versions[name]])


def _averaged(module):
    return [name for name, part in module.named_modules()
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.momentum is None and part.track_running_stats]
