"""Exporters without their output, and their warnings by line of the module."""

import contextlib
import io
import logging
import os
import sys
import warnings

import torch


@contextlib.contextmanager
def silence():
    """Suppresses all output, of Python or C++, and logs.  Yields a list of the warnings: category, text, FILE:LINE."""
    disabled, kept, warned = logging.root.manager.disable, [], []

    def keep(message, category, *_, **__):
        warned.append((category, str(message), place()))

    logging.disable()
    try:
        with (open(os.devnull, "w") as nowhere, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(io.StringIO())):
            warnings.simplefilter("always")
            warnings.showwarning = keep
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


def place(through_torch=False):
    """FILE:LINE of the module's own call, or None if PyTorch itself calls, unless the call is passed through."""
    torch_folder = os.path.dirname(torch.__file__)
    of_tensors = (os.path.join(torch_folder, file) for file in ("_tensor.py", "overrides.py"))
    passed = (os.path.dirname(__file__), warnings.__file__, *([torch_folder] if through_torch else of_tensors))
    frame = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(passed):
        frame = frame.f_back
    own = not frame or frame.f_code.co_filename.startswith(torch_folder)
    return None if own else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def traced_once(warned):
    """A note for each line of the module that TorchScript recorded with the example's values, except lines of libraries."""
    lines = {at: text.split(". ")[0].split("\n")[0] for category, text, at in warned
             if at and "site-packages" not in at and issubclass(category, torch.jit.TracerWarning)}
    return [f"{at}: the model is right for the example alone if other data take another way here: {text}"
            for at, text in lines.items()]
