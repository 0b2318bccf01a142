class TorchFunctionMode:
    pass
