"""peft: LoRA, DoRA, prompt tuning, merging, files."""

from __future__ import annotations

import tempfile

import fed
import peft
import torch
import transformers as T
from fed import case, fill, integers, steps

_X = integers(45, 2, 7) + 3


def _llama():
    return fill(T.LlamaForCausalLM(T.LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                                 num_key_value_heads=2, max_position_embeddings=64)), 0.2)


def _tuned(config):
    model = fill(peft.get_peft_model(_llama(), config), 0.2)
    return model, steps(model, lambda: model(input_ids=_X, labels=_X).loss, optimizer=torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-2))


@case("LoRA, merged, and files")
def lora():
    model, losses = _tuned(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    logits = model(input_ids=_X).logits[0, -1, :6].detach()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = peft.PeftModel.from_pretrained(fill(_llama(), 0.2), folder)
        same = torch.allclose(again(input_ids=_X).logits[0, -1, :6], again(input_ids=_X).logits[0, -1, :6])
    merged = model.merge_and_unload()
    return [losses, logits, merged(input_ids=_X).logits[0, -1, :6], same]


@case("DoRA")
def dora():
    return _tuned(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM"))[1]


@case("prompt tuning")
def prompt():
    return _tuned(peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))[1]


@case("IA3")
def ia3():
    return _tuned(peft.IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]))[1]


fed.main()
