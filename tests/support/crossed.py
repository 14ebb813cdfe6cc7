"""Simulated answers of two models to items in clusters × prompts × seeds.

A sum of latent effects decides whether an answer is correct; the variances of its effects on items sum to 1, prompts and
seeds have standard deviations in points of accuracy. Two prompts agree on 78 % of the items, two models on 68 %.
"""

from statistics import NormalDist

import numpy as np

CLUSTERS, PER_CLUSTER, PROMPTS, ACCURACY = 100, 5, 5, 0.55
CUT = NormalDist().inv_cdf(ACCURACY)
# axes (0 cluster, 1 item, 2 prompt, 3 seed), latent variance, correlation of the effect between the two models
ITEM_EFFECTS = [
    ((0,), 0.15, 0.7),
    ((0, 1), 0.55, 0.7),
    ((0, 2), 0.02, 0.3),
    ((0, 1, 2), 0.13, 0.2),
    ((0, 1, 3), 0.06, 0.2),
    ((0, 1, 2, 3), 0.09, 0.0),
]
SEED_POINTS, BOTH_POINTS, ALIKE = 1.0, 0.7, 0.3


def draw_latent(rng, prompt_points: float, shape, *, own_seeds: bool = True) -> np.ndarray:
    """Return (2 models, clusters, items, prompts, seeds); an answer is correct if positive. The models are equal.

    With `own_seeds`, each prompt comes with a seed of its own, and the last axis has one element.
    """
    scale = 100 * NormalDist().pdf(CUT)
    points = [((2,), prompt_points), ((3,), SEED_POINTS), ((2, 3), BOTH_POINTS)]
    effects = [*ITEM_EFFECTS, *((axes, (value / scale) ** 2, ALIKE) for axes, value in points)]
    latent = np.full((2, *shape), CUT * np.sqrt(sum(variance for _, variance, _ in effects)))
    for axes, variance, alike in effects:
        used = {2 if axis == 3 and own_seeds else axis for axis in axes}
        size = [n if axis in used else 1 for axis, n in enumerate(shape)]
        shared, own = rng.standard_normal((1, *size)), rng.standard_normal((2, *size))
        latent += np.sqrt(variance) * (np.sqrt(alike) * shared + np.sqrt(1 - alike) * own)
    return latent


def answers(rng, prompt_points: float, shape, *, own_seeds: bool = True) -> np.ndarray:
    """Return (2 models, items, prompts[, seeds]) of 0.0 and 1.0, items of a cluster adjacent."""
    correct = (draw_latent(rng, prompt_points, shape, own_seeds=own_seeds) > 0).astype(float)
    correct = correct.reshape(2, shape[0] * shape[1], *shape[2:])
    return correct[..., 0] if shape[3] == 1 else correct


def cluster_labels(shape) -> list[str]:
    return [str(cluster) for cluster in range(shape[0]) for _ in range(shape[1])]
