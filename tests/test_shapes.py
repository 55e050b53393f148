"""The check of annotations itself: what it refuses, passes and remembers."""

import importlib
import inspect
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float, Integer, Real, Shaped, TypeCheckError
from numpy import ndarray
from torch import Tensor

from self_attention import _shapes
from self_attention._shapes import shape_checked


@shape_checked
def product(left: Real[ndarray, "rows inner"],
            right: Real[ndarray, "inner columns"],
            times: int = 1) -> Real[ndarray, "rows columns"]:
    """Multiply."""
    return left @ right * times


@shape_checked
def wrong_result(x: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    """Give one number too many."""
    return np.append(x, 0.0)


@shape_checked
def mixed(kind: str | None = None, *,
          array: Integer[ndarray, "n"] | Bool[Tensor, "n"] | None = None,
          lengths: Sequence[int] | None = None,
          table: Mapping[str, Float[ndarray, "..."]] | None = None,
          anything: Any = None, ratio: float | int = 1.0,
          flag: bool | int = False) -> None:
    """Take one of each."""


class Sized:
    """What a method's annotation may refer to."""

    def __init__(self, width):
        self.width = width

    @shape_checked
    def __call__(self, x: Shaped[ndarray, "n {self.width}"]
                 ) -> Shaped[ndarray, "n {self.width}"]:
        """Give it back."""
        return x

    @shape_checked
    def forward(self, x: Shaped[ndarray, "{self.width}"],
                count: int = 1) -> None:
        """Take it."""

    @shape_checked
    def named(self, x: Shaped[ndarray, "{self.width}"]) -> None:
        """Take it, as well."""


def test_a_right_call_passes():
    expected = np.full((2, 5), 6.0)
    for _ in range(2):  # the second time it is remembered
        result = product(np.ones((2, 3)), np.ones((3, 5)), times=2)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: product(np.ones((2, 3)), np.ones((4, 5))), ValueError,
     "product: right has shape (4, 5); it must be a NumPy array of real "
     "numbers with axes (inner, columns) where rows=2, inner=3"),
    (lambda: product(np.ones(3), np.ones((4, 5))), ValueError,
     "product: left has shape (3,); it must be a NumPy array of real numbers "
     "with axes (rows, inner)"),
    (lambda: product(np.ones((2, 3), bool), np.ones((3, 5))), TypeError,
     "product: left has dtype bool; it must be a NumPy array of real numbers "
     "with axes (rows, inner)"),
    (lambda: product(np.ones((2, 3)), None), TypeError,
     "product: right=None is of type NoneType; it must be a NumPy array of "
     "real numbers with axes (inner, columns)"),
    (lambda: product(np.ones((2, 3)), np.ones((3, 5)), "2"), TypeError,
     "product: times='2' is of type str; it must be int"),
    (lambda: product(np.ones((2, 3)), np.ones((3, 5)), True), TypeError,
     "product: times=True is of type bool; it must be int"),
    (lambda: product(np.ones((2, 3))), TypeError,
     "product: missing a required argument: 'right'; it takes left, right, "
     "times"),
    (lambda: product(np.ones((2, 3)), times=1, other=2), TypeError,
     "product: missing a required argument: 'right'; it takes left, right, "
     "times"),
    (lambda: mixed(kind=1), TypeError,
     "mixed: kind=1 is of type int; it must be str or None"),
    (lambda: mixed(array=1.5), TypeError,
     "mixed: array=1.5 is of type float; it must be a NumPy array of integers "
     "with axes (n) or a PyTorch tensor of booleans (True = may attend) with "
     "axes (n) or None"),
    (lambda: mixed(lengths=[1, 2.5, "x"]), TypeError,
     "mixed: lengths contains 2.5 of type float; it must be a sequence of int "
     "or None"),
    (lambda: mixed(lengths={1}), TypeError,
     "mixed: lengths={1} is of type set; it must be a sequence of int or "
     "None"),
    (lambda: mixed(table={"a": np.ones(1), "b": np.ones(1, int)}), TypeError,
     "mixed: table['b'] has dtype int64; it must be a NumPy array of "
     "floating-point numbers"),
    (lambda: mixed(table={"a": np.ones(1), "b": torch.ones(1)}), TypeError,
     "mixed: table['b']=tensor([1.]) is of type torch.Tensor; it must be a "
     "NumPy array of floating-point numbers"),
    (lambda: mixed(table=3), TypeError,
     "mixed: table=3 is of type int; it must be a mapping from str to a NumPy "
     "array of floating-point numbers or None"),
    (lambda: mixed(ratio=True), TypeError,
     "mixed: ratio=True is of type bool; it must be float or int"),
    (lambda: mixed(ratio=np.float32(1)), TypeError,
     "mixed: ratio=np.float32(1.0) is of type numpy.float32; it must be float "
     "or int"),
    (lambda: mixed(kind=array("i")), TypeError,
     "mixed: kind=array('i') is of type array.array; it must be str or None"),
    (lambda: Sized(3)(np.ones((2, 4))), ValueError,
     "Sized: x has shape (2, 4); it must be a NumPy array with axes (n, "
     "width=3) where n=2"),
    (lambda: Sized(3).forward(np.ones(4)), ValueError,
     "Sized: x has shape (4,); it must be a NumPy array with axes (width=3)"),
    (lambda: Sized(3).named(np.ones(4)), ValueError,
     "Sized.named: x has shape (4,); it must be a NumPy array with axes "
     "(width=3)"),
    (lambda: Sized(3).forward(), TypeError,
     "Sized: missing a required argument: 'x'; it takes x, count"),
])
def test_what_is_said(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error
    assert str(caught.value) == message


def test_a_long_value_is_cut():
    with pytest.raises(TypeError) as caught:
        product("x" * 100, np.ones((3, 5)))
    shown = str(caught.value).partition(" is of type")[0]
    assert shown == "product: left='" + "x" * 56 + "..."
    with pytest.raises(TypeError) as caught:
        product("x" * 58, np.ones((3, 5)))
    assert "left='" + "x" * 58 + "' is of" in str(caught.value)


def test_a_value_of_several_lines_is_put_on_one():
    class Odd:
        def __repr__(self):
            return "a\n   b"

    with pytest.raises(TypeError, match=r"left=a b is of type"):
        product(Odd(), np.ones((3, 5)))


def test_what_fits_is_let_through():
    mixed("a", array=np.array([1]), lengths=(1, 2), table={}, anything=[],
          ratio=2, flag=True)
    mixed(None, array=torch.tensor([True]), lengths=range(3),
          table={"a": np.float32([1])}, ratio=0.5, flag=1)
    mixed(lengths=[], array=None, table=None)
    assert Sized(3)(np.ones((0, 3))).shape == (0, 3)


def test_a_wrong_result_is_a_fault_of_ours():
    with pytest.raises(TypeCheckError, match="return value"):
        wrong_result(np.ones(2))


def test_what_passed_does_not_let_other_calls_pass():
    """The next call differs in one thing each: size, dtype, type, value."""
    product(np.ones((2, 3)), np.ones((3, 5)), 1)
    for right in (np.ones((4, 5)), np.ones((3, 5), bool), np.ones((3, 5, 1)),
                  torch.ones(3, 5), [[1.0]]):
        with pytest.raises((ValueError, TypeError), match="right"):
            product(np.ones((2, 3)), right, 1)
    with pytest.raises(TypeError, match="times=True"):
        product(np.ones((2, 3)), np.ones((3, 5)), True)
    with pytest.raises(TypeError, match=r"times=1\.0"):
        product(np.ones((2, 3)), np.ones((3, 5)), 1.0)
    with pytest.raises(TypeError, match="'time'"):
        product(np.ones((2, 3)), right=np.ones((3, 5)), time=1)
    mixed(lengths=[1, 2])
    with pytest.raises(TypeError, match=r"lengths contains 2\.5"):
        mixed(lengths=[1, 2.5])
    mixed(table={"a": np.ones(1)})
    with pytest.raises(TypeError, match="'a'"):
        mixed(table={"a": [1.0]})


def test_another_object_has_other_sizes():
    x = np.ones((2, 3))
    assert Sized(3)(x) is x
    with pytest.raises(ValueError, match="width=4"):
        Sized(4)(x)
    layer = Sized(3)
    layer(x)
    layer.width = 4
    for call in (layer, lambda x: Sized.__call__(self=layer, x=x)):
        with pytest.raises(ValueError, match="width=4"):
            call(x)


def test_a_call_like_one_before_is_not_checked_again(monkeypatch):
    """It costs about as much as a small layer."""
    looked = []
    original = _shapes._overlooked
    monkeypatch.setattr(_shapes, "_overlooked",
                        lambda *seen: looked.append(1) or original(*seen))
    for _ in range(3):
        product(np.ones((7, 3)), np.ones((3, 7)))
    assert len(looked) == 1
    product(np.ones((7, 3)), np.ones((3, 8)))
    assert len(looked) == 2
    for _ in range(2):
        with pytest.raises(ValueError, match="right"):
            product(np.ones((7, 3)), np.ones((4, 8)))
    assert len(looked) == 4


def test_a_method_remembers_by_the_sizes_of_its_object(monkeypatch):
    looked = []
    original = _shapes._overlooked
    monkeypatch.setattr(_shapes, "_overlooked",
                        lambda *seen: looked.append(1) or original(*seen))
    for width in (8, 8, 9, 8, 9):
        Sized(width)(np.ones((2, width)))
    assert len(looked) == 2


def test_sizes_are_found_in_every_annotation():
    def method(self, x: Float[ndarray, "{self.width}"],
               y: Float[ndarray, "n {self.depth}"] | None
               ) -> tuple[Float[ndarray, "{self.height}"], int]:
        """Take two, give two."""

    signature = inspect.signature(method)
    assert _shapes._sizes_of_self(signature) == ("depth", "height", "width")


@pytest.mark.parametrize("length", [59, 60, 61, 62])
def test_long_value_is_cut_to_sixty_characters(length):
    class Spoken:
        def __repr__(self):
            return "x" * length

    told = _shapes._brief(Spoken())
    assert told == ("x" * length if length <= 60 else "x" * 57 + "...")


def test_only_so_many_calls_are_remembered(monkeypatch):
    looked = []
    original = _shapes._overlooked
    monkeypatch.setattr(_shapes, "_overlooked",
                        lambda *seen: looked.append(1) or original(*seen))
    monkeypatch.setattr(_shapes, "_REMEMBERED", 2)

    @shape_checked
    def fresh(x: Real[ndarray, "n"]) -> None:
        """Take it."""

    for size in (1, 2, 3, 1, 2, 3, 3):
        fresh(np.ones(size))
    assert len(looked) == 5  # 1, 2, and 3 each time


def test_the_docstring_and_the_name_stay():
    assert product.__name__ == "product"
    assert product.__doc__ == "Multiply."


def test_a_layer_compiles():
    """While the code is read by torch.compile, the checks stand aside."""
    compiled = torch.compile(
        lambda x: torch_product(x, x), backend="eager", fullgraph=True)
    x = torch.ones(2, 2)
    torch.testing.assert_close(compiled(x), torch.full((2, 2), 2.0))


@shape_checked
def torch_product(left: Float[Tensor, "n n"],
                  right: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Multiply."""
    return left @ right


@pytest.mark.parametrize("module", [
    "numpy_reference", "torch_eager", "torch_fused"])
def test_every_public_function_of_the_core_is_checked(module):
    """Annotations that nobody runs are comments."""
    core = importlib.import_module(f"self_attention.{module}")
    layer = core.MultiHeadSelfAttention
    call = "__call__" if module == "numpy_reference" else "forward"
    functions = [getattr(core, name) for name in core.__all__
                 if inspect.isfunction(getattr(core, name))]
    functions += [function for name, function in vars(layer).items()
                  if inspect.isfunction(function)
                  and (name in ("__init__", call) or name[0] != "_")]
    assert len(functions) > 10
    for function in functions:
        hints = [member for hint in inspect.get_annotations(function).values()
                 for member in _shapes._members(hint)]
        if any(hasattr(hint, "dim_str") or int in hints for hint in hints):
            assert hasattr(function, "__wrapped__"), function.__qualname__
