"""The variants mirror each other, and import no more than they may."""

import ast
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import self_attention
from variants import by_name

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(self_attention.__file__).parent

NAMES = [
    "MultiHeadSelfAttention", "attention_weights", "causal_mask",
    "combine_heads", "combine_masks", "padding_mask",
    "scaled_dot_product_attention", "separate_heads", "softmax",
]
METHODS = ["__init__", "__call__", "attention_weights",
           "load_parameter_arrays", "parameter_arrays", "project"]
#: Where the variants may differ, and why.
LOCAL = {"rng",  # NumPy draws from a generator, PyTorch from its own
         "device",  # NumPy knows one place only
         "dtype"}  # each library has its own dtypes and default
TILED = ("numpy_tiled", "torch_fused", "torch_tiled")
EXTRA = {name: {"is_causal", "block_size"} for name in TILED}  # skips tiles


def test_the_public_names(variant):
    missing = {name: {"softmax"} for name in TILED}  # no scores are stored
    # Chapter 10 derives by hand what autograd does for PyTorch.
    backward = "scaled_dot_product_attention_backward"
    added = {"numpy_reference": {backward, "softmax_backward"},
             "numpy_tiled": {backward, "attention_and_log_sum",
                             "merge_attention"},
             "torch_fused": {"kernels_for"}}
    expected = set(NAMES) - missing.get(variant.name, set())
    expected |= added.get(variant.name, set())
    assert variant.module.__all__ == sorted(expected)
    for name in expected:
        assert hasattr(variant.module, name)


def method(variant, name):
    layer = variant.module.MultiHeadSelfAttention
    if name == "__call__" and variant.is_torch:
        name = "forward"  # what nn.Module.__call__ runs
    return getattr(layer, name)


def parameters(variant, function):
    """Names, kinds and defaults, without what may differ."""
    allowed = LOCAL | EXTRA.get(variant.name, set())
    return [(p.name, p.kind, p.default)
            for p in inspect.signature(function).parameters.values()
            if p.name not in allowed]


@pytest.mark.parametrize("name", NAMES[1:])
def test_functions_have_equal_signatures(variant, name):
    if not variant.has(name):
        pytest.skip(f"{variant.name} never stores the scores")
    reference = by_name("numpy_reference")
    assert (parameters(variant, getattr(variant.module, name))
            == parameters(reference, getattr(reference.module, name)))


@pytest.mark.parametrize("name", METHODS)
def test_methods_have_equal_signatures(variant, name):
    reference = by_name("numpy_reference")
    assert (parameters(variant, method(variant, name))
            == parameters(reference, method(reference, name)))


def test_signatures_are_those_of_the_field():
    """Pinned once, so that equal does not mean equally wrong."""
    module = by_name("numpy_reference").module

    def text(function):
        signature = inspect.signature(function)
        plain = [p.replace(annotation=p.empty)
                 for p in signature.parameters.values()]
        return str(inspect.Signature(plain))

    assert text(module.softmax) == "(scores, axis=-1)"
    assert text(module.causal_mask) == "(query_len, key_len=None)"
    assert text(module.padding_mask) == "(lengths, seq_len, *, side='right')"
    assert text(module.combine_masks) == "(*masks)"
    assert text(module.attention_weights) == (
        "(query, key, attention_mask=None, *, scale=None)")
    assert text(module.softmax_backward) == "(weights, grad_weights, axis=-1)"
    assert text(module.scaled_dot_product_attention_backward) == (
        "(query, key, value, grad_output, attention_mask=None, *, "
        "scale=None)")
    assert text(module.scaled_dot_product_attention) == (
        "(query, key, value, attention_mask=None, *, scale=None)")
    assert text(module.separate_heads) == "(x, num_heads)"
    assert text(module.combine_heads) == "(x)"
    layer = module.MultiHeadSelfAttention
    assert text(layer.__init__).startswith(
        "(self, embed_dim, num_heads, *, head_dim=None, bias=False, rng=None")
    assert text(layer.__call__) == "(self, x, attention_mask=None)"
    assert text(layer.attention_weights) == "(self, x, attention_mask=None)"


def documented(variant):
    for name in variant.module.__all__:
        if name != "MultiHeadSelfAttention":
            yield getattr(variant.module, name)
    for name in METHODS:
        yield method(variant, name)


def test_docstrings_say_what_goes_in_and_out(variant):
    layer = variant.module.MultiHeadSelfAttention
    assert "Attributes:" in inspect.getdoc(layer)
    assert "Source" in inspect.getdoc(layer)
    assert "Sources\n" in variant.module.__doc__
    for function in documented(variant):
        text = inspect.getdoc(function)
        signature = inspect.signature(function)
        names = [name for name in signature.parameters if name != "self"]
        if function.__name__ == "__init__" and variant.name in TILED:
            # where the arguments are described
            assert "torch_eager" in text or "numpy_reference" in text
            continue
        if names:
            assert "Args:" in text, function.__qualname__
        for name in names:
            assert f"{name}:" in text, (function.__qualname__, name)
        if signature.return_annotation is not None:
            assert "Returns:" in text, function.__qualname__


def test_no_line_is_longer_than_79_columns():
    for path in SOURCES.glob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert len(line) <= 79, f"{path.name}:{number}"


def imported_by(source: str) -> set[str]:
    """The modules that a source text imports, inside functions as well."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def test_the_variants_were_written_apart():
    for path in SOURCES.glob("torch_*.py"):
        imported = imported_by(path.read_text())
        assert not any("numpy_" in name for name in imported), path.name
        assert not any(name.startswith("course") for name in imported)
    for path in SOURCES.glob("numpy_*.py"):
        imported = imported_by(path.read_text())
        for name in imported:
            assert name.partition(".")[0] not in (
                "torch", "matplotlib", "course"), path.name
            assert "torch" not in name


def loaded_with(module: str, unwanted: tuple[str, ...], *,
                first: str = "") -> str:
    """Import a module in a new interpreter, and list what came with it."""
    code = (f"{first}\nimport sys, {module}\n"
            f"print(*sorted(set({unwanted!r}) & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], check=True,
                          capture_output=True, text=True)
    return done.stdout.strip()


UNWANTED = ("torch", "matplotlib", "course")


@pytest.mark.parametrize("module", [
    "self_attention", "self_attention.numpy_reference"])
def test_the_numpy_text_needs_numpy_alone(module):
    assert loaded_with(module, UNWANTED) == ""


def test_the_torch_variants_load_torch_and_do_not_draw():
    """This also shows that the check above can fail."""
    assert loaded_with(
        "self_attention.torch_eager, self_attention.torch_fused",
        (*UNWANTED, "self_attention.numpy_reference")) == "torch"


def test_the_check_of_imports_can_fail():
    assert loaded_with("self_attention.numpy_reference", ("json", "numpy"),
                       first="import json") == "json numpy"
    assert imported_by("def f():\n    import torch.nn") == {"torch.nn"}
    assert imported_by("from course import x") == {"course"}


def run_tool(*command: str) -> None:
    tool = shutil.which(command[0], path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip(f"{command[0]} is not installed beside Python")
    done = subprocess.run([tool, *command[1:]], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_who_may_import_whom():
    run_tool("lint-imports", "--no-cache")


def test_the_import_contracts_name_every_numpy_and_torch_module():
    """A new module must be put under the contract of its kind."""
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "tool"]["importlinter"]["contracts"]
    listed = {name for contract in contracts
              for name in contract["source_modules"]}
    for path in (*SOURCES.glob("numpy_*.py"), *SOURCES.glob("torch_*.py")):
        assert f"self_attention.{path.stem}" in listed


def test_ruff_finds_nothing():
    run_tool("ruff", "check", "--no-cache", "src", "tests", "tools")
