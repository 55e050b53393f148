"""Self-attention, written twice: NumPy to read, PyTorch to run on a GPU.

Import the variant that you want to read or run:

``numpy_reference``
    from-scratch NumPy, the text that the course explains line by line
``torch_eager``
    the same names and the same steps in PyTorch, on any device
``torch_fused``
    one packed projection and PyTorch's own fused kernels

Nothing is imported here, so that reading the NumPy code never needs PyTorch.
"""

__version__ = "0.1.0"
