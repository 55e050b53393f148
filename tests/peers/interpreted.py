"""Two tiny kernels that show the traps of Triton's interpreter."""

import triton
import triton.language as tl


@triton.jit
def multiply(left, right, product, N: tl.constexpr):
    row = tl.arange(0, N)
    places = row[:, None] * N + row[None, :]
    tile = tl.dot(tl.load(left + places), tl.load(right + places))
    tl.store(product + places, tile)


@triton.jit
def to_bfloat16(numbers, halves, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(halves + places, tl.load(numbers + places).to(tl.bfloat16))
