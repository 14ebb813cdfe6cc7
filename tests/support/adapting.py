"""Adapters for tests: small ones, trained for a moment on a tiny model."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

LINES = ["A casa é grande e ten xanelas verdes.", "O neno come pan con queixo.", "As flores son brancas."]


def train(base, folder, *, steps: int = 8, seed: int = 0, rate: float = 0.05, **options):
    """Train a LoRA on the causal model in folder `base` for some steps and save it in `folder`."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **options}
    adapted = get_peft_model(model, LoraConfig(**options))
    chosen = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=rate)
    for step in range(steps):
        ids = tokenizer(LINES[step % len(LINES)], return_tensors="pt")["input_ids"]
        loss = adapted(input_ids=ids, labels=ids).loss
        loss.backward()
        chosen.step()
        chosen.zero_grad()
    adapted.save_pretrained(folder)
    return folder
