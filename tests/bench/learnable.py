"""Data with structure that the models of bench_models.py learn, for comparisons of losses: data(model, rng, rows).

Random labels are learned by heart, down to a loss of 0, of which a per cent is nothing.  Here every row is another one, its labels
depend on it, and some of them by chance, so that the least loss is well above 0:

    images    one of 10 pictures for each class, of 8x8 blocks, half as strong as the noise; 3 of 10 labels are random
    planes    a label for each pixel: blocks of 8x8 pixels have the color of their class, under noise; 3 of 10 labels are random
    tokens    a Markov chain of 256 words: the words after a word have probabilities of rank ** -1.5, in an order of its own.
              A model with labels sees half of them as one other word, and a label is the word in its place
    clicks    drawn by the logistic function of a sum over numbers and categories
"""

import numpy as np

CLASSES, STATES, STRENGTH, CHANCE = 10, 256, 0.5, 0.3


def some_random(rng, labels, below):
    """The labels, 3 of 10 of them drawn again."""
    return np.where(rng.random(labels.shape) < CHANCE, rng.integers(0, below, labels.shape), labels)


def in_blocks(small, side):
    """Planes of 8x8 as planes of side x side."""
    return np.repeat(np.repeat(small, side // 8, -1), side // 8, -2)


def images(rng, rows, shape):
    labels = rng.integers(0, CLASSES, rows)
    if len(shape) == 1:
        pictures = rng.standard_normal((CLASSES, *shape), dtype="float32")
    else:
        pictures = in_blocks(rng.standard_normal((CLASSES, shape[0], 8, 8), dtype="float32"), shape[1])
    x = rng.standard_normal((rows, *shape), dtype="float32")
    for i in range(rows):
        x[i] += STRENGTH * pictures[labels[i]]
    return {"x": x, "labels": some_random(rng, labels, CLASSES)}


def planes(rng, rows, shape, classes):
    labels = in_blocks(rng.integers(0, classes, (rows, 8, 8)), shape[1])
    colors = rng.standard_normal((classes, shape[0]), dtype="float32")
    x = colors[labels].transpose(0, 3, 1, 2) + rng.standard_normal((rows, *shape), dtype="float32")
    return {"x": x, "labels": some_random(rng, labels, classes)}


def tokens(rng, rows, length, below):
    states = min(STATES, below - 1)
    words = rng.permutation(below - 1)[:states]  # the last word stands for hidden ones
    after = np.array([rng.permutation(states) for _ in range(states)])
    p = np.arange(1, states + 1) ** -1.5
    ranks = rng.choice(states, (rows, length), p=p / p.sum())
    chain = np.empty((rows, length), np.int64)
    state = rng.integers(0, states, rows)
    for t in range(length):
        chain[:, t] = state = after[state, ranks[:, t]]
    return words[chain]


def clicks(rng, rows, n_numbers, n_tables, below):
    numbers = rng.standard_normal((rows, n_numbers), dtype="float32")
    categories = rng.integers(0, below, (rows, n_tables))
    effects = rng.standard_normal((n_tables, 2))[np.arange(n_tables), categories % 2]
    score = numbers @ rng.standard_normal(n_numbers) / n_numbers ** 0.5 + effects.sum(1) / n_tables ** 0.5
    labels = (rng.random(rows) < 1 / (1 + np.exp(-2 * score))).astype(np.int64)
    return {"numbers": numbers, "categories": categories, "labels": labels}


def data(model, rng, rows):
    """Arrays by the names of the model's inputs, and labels."""
    if "numbers" in model.inputs:
        numbers, categories = model.inputs["numbers"], model.inputs["categories"]
        return clicks(rng, rows, *numbers.shape, *categories.shape, categories.below)
    if "x" in model.inputs:
        shape = model.inputs["x"].shape
        return planes(rng, rows, shape, model.labels.below) if model.labels.shape else images(rng, rows, shape)
    ids = model.inputs["input_ids"]
    text = tokens(rng, rows, *ids.shape, ids.below)
    if not model.labels:
        return {"input_ids": text}
    return {"input_ids": np.where(rng.random(text.shape) < 0.5, ids.below - 1, text), "labels": text}
