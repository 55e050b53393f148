"""A pretrained encoder, run by the blocks of this course.

Chapter 12 looks into a model that others trained. Nothing new is needed to
run it: its layers are ``numpy_block.EncoderBlock``, whose attention is that
of ``numpy_reference``. What stands here is the way in: reading a file of
weights, cutting text into tokens, looking up embeddings. The chapter itself
needs less, a small extract of the weights that the book carries with it.

Sources
-------
Devlin et al., "BERT" (2019), arXiv:1810.04805: the embeddings and the blocks.
The safetensors format: 8 bytes with the length of a header, the header in
JSON, then the numbers.
"""

import hashlib
import io
import json
import unicodedata
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray
from numpy.typing import DTypeLike

from self_attention._shapes import shape_checked
from self_attention.convert import from_layout
from self_attention.numpy_block import EncoderBlock, LayerNorm

__all__ = ["Encoder", "Sentence", "WordPiece", "arrays_of", "bert_encoder",
           "bert_layer", "digest", "digests", "load_arrays", "load_block",
           "load_sentences", "read_safetensors", "save_arrays"]

Arrays = Mapping[str, ndarray]

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8",
           "I32": "<i4", "U8": "|u1"}


def read_safetensors(path: str | Path) -> dict[str, ndarray]:
    """Read all arrays of a file of weights.

    Args:
        path: A file in the safetensors format.

    Returns:
        The arrays by name, in the dtype of the file.

    Raises:
        ValueError: The file holds a dtype that NumPy does not have.
    """
    content = Path(path).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"{name} has the dtype {entry['dtype']}, which "
                             f"must be one of {', '.join(_DTYPES)}")
        first, end = entry["data_offsets"]
        numbers = np.frombuffer(content[start + first:start + end],
                                _DTYPES[entry["dtype"]])
        arrays[name] = numbers.reshape(entry["shape"])
    return arrays


class WordPiece:
    """Cut English text into the tokens of an uncased BERT.

    A word that the vocabulary lacks is cut into the longest pieces that it
    has, from the left; a piece inside a word begins with ``##``.

    Attributes:
        ids: The number of each token of the vocabulary.

    Source: Devlin et al. (2019), section 3; Wu et al. (2016),
    arXiv:1609.08144, for the pieces.
    """

    def __init__(self, vocabulary: Iterable[str]) -> None:
        """Take the vocabulary, in the order of its numbers."""
        self.ids = {token: number for number, token in enumerate(vocabulary)}

    @classmethod
    def from_file(cls, path: str | Path) -> "WordPiece":
        """Read a ``vocab.txt``, one token a line."""
        return cls(Path(path).read_text("utf8").splitlines())

    def __call__(self, text: str) -> list[str]:
        """Cut a text, and put [CLS] before it and [SEP] behind it.

        Args:
            text: Any text; case and accents are dropped.

        Returns:
            The tokens. A word that cannot be cut becomes [UNK].
        """
        pieces = [piece for word in _words(text) for piece in self._cut(word)]
        return ["[CLS]", *pieces, "[SEP]"]

    def numbers(self, tokens: Sequence[str]) -> ndarray:
        """Look up the number of each token."""
        return np.array([self.ids[token] for token in tokens])

    def _cut(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while start < len(word):
            marks = "##" if start else ""
            ends = (end for end in range(len(word), start, -1)
                    if marks + word[start:end] in self.ids)
            end = next(ends, None)
            if end is None:
                return ["[UNK]"]
            pieces.append(marks + word[start:end])
            start = end
        return pieces


def _words(text: str) -> list[str]:
    """Lower case, no accents; marks and Chinese characters stand alone."""
    text = unicodedata.normalize("NFD", text.lower())
    spaced = []
    for sign in text:
        kind = unicodedata.category(sign)
        if kind == "Mn":
            continue
        alone = (kind[0] == "P" or "一" <= sign <= "鿿"
                 or (sign.isascii() and not sign.isalnum()))
        spaced.append(f" {sign} " if alone and not sign.isspace() else sign)
    return "".join(spaced).split()


class Encoder:
    """Token numbers in, the vectors of every layer out.

    Attributes:
        words: ``(vocabulary, embed_dim)``, one row for each token.
        positions: ``(max_len, embed_dim)``, one row for each position.
        types: ``(2, embed_dim)``; row 0 belongs to every token of a single
            sentence.
        norm: ``LayerNorm`` of their sum.
        blocks: ``EncoderBlock``, one for each layer.

    Source: Devlin et al. (2019), section 3.
    """

    def __init__(self, words: ndarray, positions: ndarray, types: ndarray,
                 norm: LayerNorm, blocks: Sequence[EncoderBlock]) -> None:
        """Take the parts; ``bert_encoder`` makes them from a file."""
        self.words, self.positions, self.types = words, positions, types
        self.norm, self.blocks = norm, list(blocks)

    @shape_checked
    def embed(self, token_ids: Integer[ndarray, "seq_len"]
              ) -> Float[ndarray, "seq_len embed_dim"]:
        """Add up word, position and type of each token, and normalise.

        Args:
            token_ids: Number of each token of one sentence.
        """
        positions = self.positions[:len(token_ids)]
        return self.norm(self.words[token_ids] + positions + self.types[0])

    @shape_checked
    def __call__(self, token_ids: Integer[ndarray, "seq_len"]
                 ) -> Float[ndarray, "layers_plus_1 seq_len embed_dim"]:
        """Run one sentence through all layers.

        Args:
            token_ids: Number of each token.

        Returns:
            The input of each layer, and last the output of the last layer.
        """
        states = [self.embed(token_ids)[None]]
        for block in self.blocks:
            states.append(block(states[-1]))
        return np.concatenate(states)

    @shape_checked
    def attention_weights(
        self, states: Float[ndarray, "layers_plus_1 seq_len embed_dim"]
    ) -> Float[ndarray, "layers num_heads seq_len seq_len"]:
        """Say how much each token attends to each other, in every head.

        Args:
            states: What calling the encoder gave.
        """
        return np.concatenate([
            block.self_attention.attention_weights(x[None])
            for block, x in zip(self.blocks, states)])


def bert_encoder(tensors: Arrays, *, num_heads: int, eps: float = 1e-12,
                 dtype: DTypeLike = np.float64) -> Encoder:
    """Build an encoder from weights by the names that BERT gives them.

    Args:
        tensors: Arrays such as ``embeddings.word_embeddings.weight``, with
            matrices as (out, in).
        num_heads: Number of heads of each layer.
        eps: Of the norms.
        dtype: The dtype to compute in.
    """
    def table(name: str) -> ndarray:
        return tensors[f"embeddings.{name}_embeddings.weight"].astype(dtype)

    norm = LayerNorm(table("word").shape[1], eps=eps, dtype=dtype)
    norm.load_parameter_arrays(
        {name: array.astype(dtype) for name, array
         in _norm_arrays(tensors, "embeddings.LayerNorm").items()})
    layers = {int(name.split(".")[2]) for name in tensors
              if name.startswith("encoder.layer.")}
    blocks = [load_block(bert_layer(tensors, layer, num_heads=num_heads),
                         num_heads=num_heads, eps=eps, dtype=dtype)
              for layer in sorted(layers)]
    return Encoder(table("word"), table("position"), table("token_type"),
                   norm, blocks)


def bert_layer(tensors: Arrays, layer: int, *,
               num_heads: int) -> dict[str, ndarray]:
    """Give the arrays of one of BERT's layers the names of our block.

    Args:
        tensors: As for :func:`bert_encoder`.
        layer: Its number, from 0.
        num_heads: Number of its heads.

    Returns:
        Arrays by the names of ``EncoderBlock.parameter_arrays``.
    """
    start = f"encoder.layer.{layer}."
    parts = {f"{part}.{kind}": tensors[f"{start}attention.{part}.{kind}"]
             for part in ("self.query", "self.key", "self.value",
                          "output.dense") for kind in ("weight", "bias")}
    attention = from_layout(parts, "bert", num_heads=num_heads)
    return {
        **_prefixed("self_attention", attention),
        **_prefixed("norm_1", _norm_arrays(
            tensors, f"{start}attention.output.LayerNorm")),
        "feed_forward.W_1": tensors[f"{start}intermediate.dense.weight"].T,
        "feed_forward.b_1": tensors[f"{start}intermediate.dense.bias"],
        "feed_forward.W_2": tensors[f"{start}output.dense.weight"].T,
        "feed_forward.b_2": tensors[f"{start}output.dense.bias"],
        **_prefixed("norm_2", _norm_arrays(
            tensors, f"{start}output.LayerNorm"))}


def load_block(arrays: Arrays, *, num_heads: int, eps: float = 1e-12,
               dtype: DTypeLike = np.float64) -> EncoderBlock:
    """Make a post-norm block with GELU, as BERT has it, of these weights.

    Args:
        arrays: By the names of ``EncoderBlock.parameter_arrays``.
        num_heads: Number of heads.
        eps: Of the norms.
        dtype: The dtype to compute in.
    """
    embed_dim, hidden_dim = arrays["feed_forward.W_1"].shape
    block = EncoderBlock(embed_dim, num_heads, hidden_dim, activation="gelu",
                         eps=eps, dtype=dtype)
    block.load_parameter_arrays(
        {name: array.astype(dtype) for name, array in arrays.items()})
    return block


def _norm_arrays(tensors: Arrays, name: str) -> dict[str, ndarray]:
    return {"scale": tensors[f"{name}.weight"],
            "shift": tensors[f"{name}.bias"]}


def _prefixed(start: str, arrays: Arrays) -> dict[str, ndarray]:
    return {f"{start}.{name}": array for name, array in arrays.items()}


# --- The extract that the book carries --------------------------------------

def digest(array: ndarray) -> str:
    """Name the content of an array: sha256 of its dtype, shape and bytes."""
    plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    head = f"{plain.dtype.str} {plain.shape} ".encode()
    return hashlib.sha256(head + plain.tobytes()).hexdigest()


def digests(arrays: Arrays) -> dict[str, str]:
    """Name the content of several arrays."""
    return {name: digest(array) for name, array in sorted(arrays.items())}


def save_arrays(path: str | Path, arrays: Arrays) -> None:
    """Write arrays so that the same arrays give the same file.

    NumPy's own ``savez`` writes the time of day into the file.

    Args:
        path: The file, ``.npz``.
        arrays: The arrays by name; no objects.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED,
                         compresslevel=9) as file:
        for name, array in sorted(arrays.items()):
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array),
                                      allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, content.getvalue(), compresslevel=9)


def load_arrays(path: str | Path,
                expected: Mapping[str, str]) -> dict[str, ndarray]:
    """Read arrays, and refuse them if a single bit is not as recorded.

    Args:
        path: A file that ``save_arrays`` wrote.
        expected: What ``digests`` gave then.

    Raises:
        ValueError: An array is missing, unknown, or has other content.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    found = digests(arrays)
    wrong = {name for name in found.keys() | expected.keys()
             if found.get(name) != expected.get(name)}
    if wrong:
        raise ValueError(f"{Path(path).name}: not as recorded: "
                         f"{', '.join(sorted(wrong))}")
    return arrays


def arrays_of(part: str, arrays: Arrays) -> dict[str, ndarray]:
    """Take the arrays of one part out of an extract, to compute with them.

    Args:
        part: Their name up to the first dot, such as ``layer_2``.
        arrays: The extract.

    Returns:
        The arrays without that beginning of their names, in float64.
    """
    return {name.removeprefix(f"{part}."): array.astype(np.float64)
            for name, array in arrays.items() if name.startswith(f"{part}.")}


@dataclass(frozen=True)
class Sentence:
    """A sentence with two nouns, "it" and an adjective, inside the model.

    Attributes:
        tokens: Its tokens.
        it, first_noun, second_noun, adjective: Their positions.
        x: ``(seq_len, embed_dim)``, input of layer 2 (counted from 0).
        recorded: ``(6, 12, seq_len)``, the row of "it" in every head of
            every layer, as the whole model gave it.
    """

    tokens: tuple[str, ...]
    it: int
    first_noun: int
    second_noun: int
    adjective: int
    x: ndarray
    recorded: ndarray


def load_sentences(arrays: Arrays, entries: Sequence[Mapping[str, Any]]
                   ) -> list[tuple[Sentence, Sentence]]:
    """Put the sentences of the extract together, two and two.

    Args:
        arrays: The extract.
        entries: What the record says of each sentence, in their order.

    Returns:
        Pairs of sentences that differ in the adjective alone. The first of
        the two adjectives fits the first noun, the other the second noun.
    """
    tokens = [tuple(entry["tokens"].split()) for entry in entries]
    ends = np.cumsum([len(row) for row in tokens])
    xs = np.split(arrays["x"].astype(np.float64), ends[:-1])
    rows = np.split(arrays["recorded"].astype(np.float64), ends[:-1], axis=-1)
    sentences = [
        Sentence(names, entry["it"], entry["first_noun"],
                 entry["second_noun"], entry["adjective"], x, row)
        for names, entry, x, row in zip(tokens, entries, xs, rows)]
    return list(zip(sentences[0::2], sentences[1::2]))
