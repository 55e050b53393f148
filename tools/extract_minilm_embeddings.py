"""Cut the small extract of chapter 13 out of a pretrained English encoder.

Usage: python tools/extract_minilm_embeddings.py

It needs the same package as ``extract_minilm_heads.py``. It writes
chapters/data/minilm_embeddings.npz, a sample of the three embedding tables
and two heads of the first layer, and chapters/data/embeddings_record.json,
what was measured on the whole tables. The same package gives the same arrays.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from course.encoder import WordPiece, digests, read_safetensors, save_arrays
from extract_minilm_heads import (
    DATA,
    FILE_SHA256,
    MODEL,
    NUM_HEADS,
    PACKAGE,
    VERSION,
    model_folder,
)
from self_attention.numpy_reference import separate_heads

RECORD = DATA / "embeddings_record.json"
EXTRACT = DATA / "minilm_embeddings.npz"
SENTENCE = "The animal didn't cross the street because it was too tired"
NUM_WORDS = 240
NUM_POSITIONS = 128
HEADS = (1, 2)
EPS = 1e-12


def main() -> int:
    """Write the extract and the record."""
    folder = model_folder()
    if folder is None:
        print(f"the package {PACKAGE} is not installed: see "
              "requirements/models.txt", file=sys.stderr)
        return 1
    tensors, tokenizer = read_model(folder)
    arrays = build(tensors, tokenizer)
    save_arrays(EXTRACT, arrays)
    record = {
        "model": MODEL, "package": f"{PACKAGE} {VERSION}",
        "file_sha256": FILE_SHA256, "licence": "Apache-2.0",
        "rebuilt_by": "tools/extract_minilm_embeddings.py",
        "sentence": tokenizer(SENTENCE), "heads": list(HEADS),
        "words": sample_of_words(tokenizer), "arrays": digests(arrays),
        "measured": measure(tensors, tokenizer)}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf8")
    print(f"{EXTRACT.name}: {EXTRACT.stat().st_size:,} bytes")
    return 0


def read_model(folder: Path) -> tuple[dict[str, ndarray], WordPiece]:
    """Read the weights and the vocabulary, if it is the right model."""
    weights = folder / "model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest()
    if found != FILE_SHA256:
        raise SystemExit(f"{weights.name} has the sha256 {found}, not "
                         f"{FILE_SHA256}: another model")
    return (read_safetensors(weights),
            WordPiece.from_file(folder / "vocab.txt"))


def sample_of_words(tokenizer: WordPiece) -> list[str]:
    """The tokens of the sentence, then whole words drawn at random."""
    own = list(dict.fromkeys(tokenizer(SENTENCE)))
    whole = [token for token in tokenizer.ids if token.isascii()
             and token.isalpha() and len(token) >= 3 and token not in own]
    drawn = np.random.RandomState(13).permutation(len(whole))
    return own + [whole[n] for n in drawn[:NUM_WORDS - len(own)]]


def tables(tensors: dict[str, ndarray]) -> tuple[ndarray, ndarray, ndarray]:
    """The tables of words, positions and types, in float64."""
    word, position, kind = (
        tensors[f"embeddings.{name}_embeddings.weight"].astype(np.float64)
        for name in ("word", "position", "token_type"))
    return word, position, kind


def build(tensors: dict[str, ndarray],
          tokenizer: WordPiece) -> dict[str, ndarray]:
    """Compute the arrays of the extract, in half precision."""
    word, position, kind = tables(tensors)
    numbers = tokenizer.numbers(sample_of_words(tokenizer))
    arrays = {"words": word[numbers], "positions": position[:NUM_POSITIONS],
              "types": kind,
              "norm_scale": tensors["embeddings.LayerNorm.weight"],
              "norm_shift": tensors["embeddings.LayerNorm.bias"]}
    for name, weight, bias in projections(tensors):
        arrays[f"W_{name}"] = weight[list(HEADS)]
        arrays[f"b_{name}"] = bias[list(HEADS)]
    return {name: array.astype(np.float16) for name, array in arrays.items()}


def projections(tensors: dict[str, ndarray]
                ) -> list[tuple[str, ndarray, ndarray]]:
    """Query and key weights of layer 0: (heads, in, out) and (heads, out)."""
    found = []
    for name in ("query", "key"):
        start = f"encoder.layer.0.attention.self.{name}."
        weight = tensors[start + "weight"].astype(np.float64).T
        bias = tensors[start + "bias"].astype(np.float64)
        found.append((name[0], separate_heads(weight, NUM_HEADS),
                      bias.reshape(NUM_HEADS, -1)))
    return found


# --- What is measured on the whole tables ------------------------------------

def measure(tensors: dict[str, ndarray],
            tokenizer: WordPiece) -> dict[str, Any]:
    """Measure what the chapter says of the whole tables.

    Returns:
        Named numbers, rounded: they must be the same on every machine.
    """
    word, position, kind = tables(tensors)
    real = np.array([number for token, number in tokenizer.ids.items()
                     if not token.startswith("[unused")])
    found = {"words": len(real), **geometry(word[real], position, kind),
             **probes(word[real], position, kind, tensors),
             **score_shares(tensors, tokenizer)}
    return {name: (np.round(value, 4) + 0).tolist()
            for name, value in found.items()}


def geometry(word: ndarray, position: ndarray,
             kind: ndarray) -> dict[str, Any]:
    """Lengths, angles, and how many dimensions each table uses."""
    angles = unit(word) @ unit(position).T
    centred = unit(word - word.mean(0)) @ unit(position - position.mean(0)).T
    word_spread, position_spread = (np.linalg.svd(
        table - table.mean(0), full_matrices=False)[1:] for table in
        (word, position))
    top = position_spread[1][:10]
    return {
        "length_word": np.linalg.norm(word, axis=1).mean(),
        "length_position": np.linalg.norm(position, axis=1).mean(),
        "length_type": np.linalg.norm(kind, axis=1),
        "cosine_mean": angles.mean(), "cosine_spread": angles.std(),
        "centred_cosine_mean": centred.mean(),
        "centred_cosine_spread": centred.std(),
        "cosine_of_types": unit(kind)[0] @ unit(kind)[1],
        "dimensions_word": dimensions(word_spread[0]),
        "dimensions_position": dimensions(position_spread[0]),
        "top_ten_of_position": share_in(position, top),
        "top_ten_of_word": share_in(word, top)}


def unit(rows: ndarray) -> ndarray:
    """Give every row the length 1."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def dimensions(singular_values: ndarray, share: float = 0.95) -> int:
    """How many principal directions hold this share of the variance."""
    part = np.cumsum(singular_values**2) / np.sum(singular_values**2)
    return int((part < share).sum()) + 1


def share_in(table: ndarray, directions: ndarray) -> float:
    """Which share of a table's variance lies in these directions."""
    centred = table - table.mean(0)
    return float(((centred @ directions.T)**2).sum() / (centred**2).sum())


def draw(word: ndarray, position: ndarray, kind: ndarray, count: int,
         seed: int) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Draw the numbers of words, positions and types, and add their rows."""
    random = np.random.RandomState(seed)
    w = random.randint(len(word), size=count)
    p = random.randint(NUM_POSITIONS, size=count)
    t = random.randint(2, size=count)
    return w, p, t, word[w] + position[p] + kind[t]


def fit(x: ndarray, wanted: ndarray, strength: float = 0.01) -> ndarray:
    """Ridge regression with a constant."""
    x = np.c_[x, np.ones(len(x))]
    return np.linalg.solve(x.T @ x + strength * np.eye(x.shape[1]),
                           x.T @ wanted)


def nearest(rows: ndarray, x: ndarray) -> ndarray:
    """Number of the nearest row; the comparison is linear in x."""
    return (x @ rows.T - 0.5 * (rows**2).sum(axis=1)).argmax(axis=1)


def probes(word: ndarray, position: ndarray, kind: ndarray,
           tensors: dict[str, ndarray]) -> dict[str, float]:
    """How often the three parts are found again, on words not trained on."""
    order = np.random.RandomState(1).permutation(len(word))
    seen, unseen = np.array_split(order, 2)
    train = draw(word[seen], position, kind, 30_000, 0)
    w, p, t, x = draw(word[unseen], position, kind, 2_000, 1)
    position = position[:NUM_POSITIONS]
    found = {"word_from_sum": (nearest(word, x) == unseen[w]).mean()}
    for name, change in (("sum", lambda x: x),
                         ("norm", lambda x: layer_norm(x, tensors))):
        source, target = change(train[3]), change(x)
        wanted = np.c_[position[train[1]], train[2]]
        guess = np.c_[target, np.ones(len(x))] @ fit(source, wanted)
        found[f"position_from_{name}"] = (
            nearest(position, guess[:, :-1]) == p).mean()
        found[f"type_from_{name}"] = ((guess[:, -1] > 0.5) == t).mean()
        if name == "norm":
            back = np.c_[target, np.ones(len(x))] @ fit(
                source, word[seen][train[0]])
            found["word_from_norm"] = (
                nearest(word, back) == unseen[w]).mean()
    random = np.random.RandomState(2)
    made = [unit(random.standard_normal(table.shape)) * np.linalg.norm(
        table, axis=1, keepdims=True) for table in (word, position, kind)]
    w, _, _, x = draw(*made, 2_000, 3)
    found["word_from_random_tables"] = (nearest(made[0], x) == w).mean()
    return found


def layer_norm(x: ndarray, tensors: dict[str, ndarray]) -> ndarray:
    """The norm that follows the sum."""
    centred = x - x.mean(-1, keepdims=True)
    size = np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
    return (centred / size * tensors["embeddings.LayerNorm.weight"]
            + tensors["embeddings.LayerNorm.bias"])


def score_shares(tensors: dict[str, ndarray],
                 tokenizer: WordPiece) -> dict[str, Any]:
    """Split the scores of layer 0 by what the query and the key carry.

    Returns:
        For each head, which share of the variance within a row comes from
        each pair of parts. "rest" is what all tokens share: the type, the
        shift of the norm and the bias. A share below 0 works against the sum.
    """
    word, position, kind = tables(tensors)
    numbers = tokenizer.numbers(tokenizer(SENTENCE))
    parts = np.stack([word[numbers], position[:len(numbers)],
                      np.repeat(kind[:1], len(numbers), 0)])
    x = parts.sum(axis=0)
    centred = x - x.mean(-1, keepdims=True)
    size = np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
    scale = tensors["embeddings.LayerNorm.weight"]
    parts = (parts - parts.mean(-1, keepdims=True)) / size * scale
    parts[2] += tensors["embeddings.LayerNorm.bias"]
    (_, W_q, b_q), (_, W_k, b_k) = projections(tensors)
    query = np.einsum("pnd,hde->phne", parts, W_q)
    key = np.einsum("pnd,hde->phne", parts, W_k)
    query[-1] += b_q[:, None]
    key[-1] += b_k[:, None]
    terms = np.einsum("phne,rhme->prhnm", query, key)
    terms -= terms.mean(-1, keepdims=True)
    whole = terms.sum(axis=(0, 1))
    shares = ((terms * whole).sum(-1) / (whole**2).sum(-1).mean(-1)[..., None]
              ).mean(-1)
    names = ("word", "position", "rest")
    return {"share_" + query_part + "_" + key_part: shares[i, j]
            for i, query_part in enumerate(names)
            for j, key_part in enumerate(names)}


if __name__ == "__main__":
    sys.exit(main())
