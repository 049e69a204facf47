"""The predictor's rule (src/plan/predictor.cc) once more, in numpy: replays a table of requests with any settings."""

import dataclasses

import numpy as np

DEFAULT = 256  # tokens, when nothing is known


@dataclasses.dataclass
class Settings:
    neighbours: int = 8
    least_neighbours: int = 2
    least_similarity: float = 0.2
    quantile: float = 0.55
    power: float = 1.0  # of the similarity, as weight
    centred: bool = True
    by_prompt: float = 0.0  # of each factor e between the prompts' lengths, off the similarity


def length_quantile(lengths, cut_off, weights, quantile):
    """Product-limit quantile: the longest length where too many were cut off to tell."""
    order = sorted(zip(lengths, cut_off, weights))
    at_risk, longer = sum(weights), 1.0
    for length, cut, weight in order:
        if not cut:
            longer *= 1 - min(weight / at_risk, 1)
        if longer <= 1 - quantile + 1e-9:
            return length
        at_risk -= weight
    return order[-1][0]


def similarities(earlier, fingerprint, centred):
    mean = earlier.mean(0) if centred else 0
    directions, wanted = earlier - mean, fingerprint - mean

    def unit(x):
        squares = (x * x).sum(-1, keepdims=True)
        return np.where(squares > 1e-8, x / np.sqrt(np.maximum(squares, 1e-30)), 0)
    return unit(directions) @ unit(wanted)


def predict(earlier, row, settings):
    """Of rows with "fingerprint", "prompt_n", "output_n" and "cut_off". Gives tokens and what they come from."""
    if not earlier:
        return DEFAULT, "default"
    lengths = [other["output_n"] for other in earlier]
    cut = [other["cut_off"] for other in earlier]
    known = np.array([other["fingerprint"] for other in earlier], dtype=np.float32)
    similarity = similarities(known, np.array(row["fingerprint"], dtype=np.float32), settings.centred)
    ratios = np.array([other["prompt_n"] / row["prompt_n"] for other in earlier])
    similarity = similarity - settings.by_prompt * np.abs(np.log(ratios))
    nearest = sorted(range(len(earlier)), key=lambda i: (-similarity[i], -i))[:settings.neighbours]
    nearest = [i for i in nearest if similarity[i] >= settings.least_similarity]
    if len(nearest) < settings.least_neighbours:
        return max(length_quantile(lengths, cut, [1.0] * len(lengths), settings.quantile), 1), "history"
    tokens = length_quantile([lengths[i] for i in nearest], [cut[i] for i in nearest],
                             [float(similarity[i]) ** settings.power for i in nearest], settings.quantile)
    return max(tokens, 1), f"{len(nearest)} neighbours"


def predict_history(earlier, settings):
    if not earlier:
        return DEFAULT
    return length_quantile([row["output_n"] for row in earlier], [row["cut_off"] for row in earlier],
                           [1.0] * len(earlier), settings.quantile)


def predict_mean(earlier):
    return sum(row["output_n"] for row in earlier) / len(earlier) if earlier else DEFAULT
