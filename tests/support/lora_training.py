"""Small LoRA adapters for tests, trained for a few steps on a tiny model."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

LINES = ["A casa é grande e ten xanelas verdes.", "O neno come pan con queixo.", "As flores son brancas."]


def train(base, directory, *, steps: int = 8, seed: int = 0, learning_rate: float = 0.05, **options):
    """Train a LoRA on the causal model in directory `base` and save it in `directory`."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **options}
    model_with_adapter = get_peft_model(model, LoraConfig(**options))
    optimizer = torch.optim.AdamW([p for p in model_with_adapter.parameters() if p.requires_grad], lr=learning_rate)
    for step in range(steps):
        ids = tokenizer(LINES[step % len(LINES)], return_tensors="pt")["input_ids"]
        loss = model_with_adapter(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model_with_adapter.save_pretrained(directory)
    return directory
