"""Similarities of two texts: cosine, MoverScore and BERTScore, from their definitions, one pair of texts at a time."""

import math
import string

import numpy as np
import ot
import torch


@torch.inference_mode()
def cosine(tokenizer, model, first: str, second: str, prefix: str = "") -> float:
    """Compute the cosine of mean-pooled last hidden states, special tokens included.

    Simil-Eval (utils/metrics.py) does this with the evaluated model; sentence-transformers with an encoder and its
    prefix.
    """

    def embed(text):
        ids = tokenizer(prefix + text, return_tensors="pt", truncation=True)["input_ids"]
        return model(input_ids=ids).last_hidden_state[0].double().mean(0)

    return torch.cosine_similarity(embed(first), embed(second), dim=0).item()


@torch.inference_mode()
def moverscore_simil_eval(tokenizer, model, first: str, second: str) -> float:
    """Compute Simil-Eval's MoverScore (moverscore_v2.py): unigrams, weights 1, all tokens of both texts in one matrix.

    The tokenizer is given as Simil-Eval configures it: lower-casing, for a BERT tokenizer.
    """
    clouds = []
    for text in (second, first):
        tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
        ids = [tokenizer.convert_tokens_to_ids(token) for token in tokens]
        ids = [tokenizer.unk_token_id if i is None else i for i in ids]
        vectors = model(torch.tensor([ids])).last_hidden_state[0].clone()
        weights = np.array([0.0 if "##" in t or t in set(string.punctuation) else 1.0 for t in tokens])
        vectors[weights == 0] = 0
        clouds.append((vectors, weights))
    raw = torch.cat([vectors for vectors, _ in clouds])
    raw = raw / (torch.norm(raw, dim=-1, keepdim=True) + 1e-30)
    distances = torch.cdist(raw.double(), raw.double()).numpy()
    sizes = [len(weights) for _, weights in clouds]
    second_weights = np.concatenate([clouds[0][1], np.zeros(sizes[1])])
    first_weights = np.concatenate([np.zeros(sizes[0]), clouds[1][1]])
    masses = (second_weights / second_weights.sum(), first_weights / first_weights.sum())
    return 1 / (1 + ot.emd2(*masses, distances))


@torch.inference_mode()
def moverscore(tokenizer, model, first: str, second: str, weight=lambda token_id: 1.0) -> float:
    """Compute 1 / (1 + EMD) over the first token of each word that is not punctuation, without special tokens.

    `weight` maps a token ID to its weight (idf).
    """

    def cloud(text):
        encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        states = model(encoded["input_ids"]).last_hidden_state[0].double().numpy()
        indices, words = [], set()
        for i, (word, (start, end)) in enumerate(
            zip(encoded.word_ids(0), encoded["offset_mapping"][0].tolist(), strict=True)
        ):
            if word is not None and word not in words and text[start:end].strip(string.punctuation + " "):
                words.add(word)
                indices.append(i)
        masses = np.array([weight(token) for token in encoded["input_ids"][0, indices].tolist()])
        return states[indices] / np.linalg.norm(states[indices], axis=1, keepdims=True), masses / masses.sum()

    (points_1, mass_1), (points_2, mass_2) = cloud(first), cloud(second)
    return 1 / (1 + ot.emd2(mass_1, mass_2, np.linalg.norm(points_1[:, None] - points_2[None], axis=2)))


def idf(documents: list[set[int]]):
    """Return a function of token IDs: ln((M + 1) / (df + 1)) over M documents, given as sets of token IDs."""

    def weight(token_id: int) -> float:
        return math.log((len(documents) + 1) / (sum(token_id in document for document in documents) + 1))

    return weight


@torch.inference_mode()
def bertscore(tokenizer, model, candidate: str, reference: str, layer: int, weight=None) -> float:
    """Compute BERTScore's F1 (Zhang et al. 2020, equations 1 to 3) with the hidden states of `layer`.

    `weight` maps a token ID to its idf; None: 1, and 0 for the first and last token ([CLS] and [SEP]), as in the package.
    """

    def embed(text):
        encoded = tokenizer(text.strip(), return_tensors="pt", truncation=True)
        states = model(**encoded, output_hidden_states=True).hidden_states[layer][0].double()
        ids = encoded["input_ids"][0].tolist()
        ends = {tokenizer.cls_token_id, tokenizer.sep_token_id}
        weights = [float(i not in ends) if weight is None else weight(i) for i in ids]
        return states / states.norm(dim=-1, keepdim=True), torch.tensor(weights, dtype=torch.float64)

    (candidate_states, candidate_weights), (reference_states, reference_weights) = embed(candidate), embed(reference)
    similarity = candidate_states @ reference_states.T
    precision = (similarity.max(1).values * candidate_weights).sum() / candidate_weights.sum()
    recall = (similarity.max(0).values * reference_weights).sum() / reference_weights.sum()
    return (2 * precision * recall / (precision + recall)).item()
