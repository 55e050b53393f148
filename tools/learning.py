"""Train the models of the learning chapter with many seeds, and record it.

Usage: python tools/learning.py              (several minutes of one core)

Writes ``chapters/data/learning_record.json``, which the chapter shows. A slow
test trains again and compares.
"""

import json
import platform
from pathlib import Path

import numpy as np
import torch

from course.pronoun import Sentences, paint, split
from course.pronoun_model import (
    Edit,
    PronounModel,
    accuracy,
    change_row,
    evenly,
    hide,
    probe,
    swap,
    switch_off,
    together,
    train,
)

RECORD = (Path(__file__).resolve().parents[1] / "chapters" / "data"
          / "learning_record.json")
#: Layers, heads, whose row is read, steps, number of seeds.
MODELS = [(1, 1, "adjective", 150, 20), (1, 1, "it", 300, 20),
          (1, 2, "it", 2000, 5), (2, 1, "it", 400, 20), (2, 2, "it", 400, 20)]


def trained(layers: int, heads: int, at: str, steps: int,
            seed: int) -> PronounModel:
    """Train one model as the chapter does."""
    model = PronounModel(layers, heads, seed=seed)
    for _ in train(model, split()[0], at=at, steps=steps, seed=seed):
        pass
    return model


def experiments(model: PronounModel, held_out: Sentences) -> dict[str, object]:
    """Change the weights of a model with two layers and two heads."""
    edits: dict[str, Edit] = {
        f"{name} layer: head {head} off": switch_off(layer, head)
        for layer, name in enumerate(("first", "second")) for head in (0, 1)}
    not_to = hide(held_out.adjective)
    from_it = change_row(0, held_out.it, not_to)
    from_nouns = together(change_row(0, held_out.animal, not_to),
                          change_row(0, held_out.place, not_to))
    edits |= {
        "nouns swapped": change_row(
            1, held_out.it, swap(held_out.animal, held_out.place)),
        "even row": change_row(1, held_out.it, evenly(held_out.words)),
        "adjective hidden from it": from_it,
        "adjective hidden from the nouns": from_nouns,
        "adjective hidden from it, second layer": change_row(
            1, held_out.it, not_to),
    }
    result: dict[str, object] = {
        name: round(accuracy(model, held_out, edit=edit), 4)
        for name, edit in edits.items()}
    weights = probe(model, paint(held_out, np.random.RandomState(7))).weights
    count = np.arange(len(held_out))
    heavier = (weights[count, :, held_out.referent]
               > weights[count, :, held_out.other]).sum(axis=0)
    return result | {"referent heavier": heavier.tolist()}


def measure() -> dict[str, object]:
    """Train all models and give the record."""
    torch.set_num_threads(1)
    seen, held_out = split()
    rows = []
    for layers, heads, at, steps, seeds in MODELS:
        row: dict[str, object] = {
            "layers": layers, "heads": heads, "read at": at, "steps": steps,
            "seeds": seeds}
        models = [trained(layers, heads, at, steps, seed)
                  for seed in range(seeds)]
        row["seen"] = [round(accuracy(model, seen, at=at), 4)
                       for model in models]
        row["held out"] = [round(accuracy(model, held_out, at=at), 4)
                           for model in models]
        if (layers, heads) == (2, 2):
            row["experiments"] = [experiments(model, held_out)
                                  for model in models]
        rows.append(row)
        print(layers, heads, at, sorted(row["held out"])[:3], flush=True)
    return {"what": "Share of right answers after training, for seeds 0, 1, "
                    "...; made by tools/learning.py",
            "sentences": {"seen": len(seen), "held out": len(held_out)},
            "versions": {"python": platform.python_version(),
                         "numpy": np.__version__, "torch": torch.__version__},
            "machine": platform.machine(), "threads": 1, "models": rows}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(measure(), indent=1) + "\n", "utf8")
