"""Write a trained model as a checkpoint folder in the release's layout (bf16 safetensors)."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from model import Clover
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokens import CHAT_TEMPLATE

# Width 16 writes 6 tokens a forward but loses 1 to 4 points of exact match (README.md).
DECODE_WIDTH = 8
FLOAT32 = ("A_log", "dt_bias", "bd_softmax_logit_scale", "bd_softmax_history")


def save_checkpoint(model: Clover, tok: Tokenizer, folder: Path) -> None:
    """config.json, model.safetensors, tokenizer and generation defaults, under the real names."""
    folder.mkdir(parents=True, exist_ok=True)
    cfg = model.cfg
    mask, stop = tok.token_to_id("<|mask|>"), tok.token_to_id("<|im_end|>")
    end = tok.token_to_id("<|endoftext|>")
    fields = cfg.to_dict()
    rope = {
        "rope_type": "default",
        "rope_theta": fields.pop("rope_theta"),
        "partial_rotary_factor": fields.pop("partial_rotary_factor"),
    }
    config = {
        "architectures": ["CloverMoeModelLM"],
        "model_type": "clover_moe",
        **fields,
        "num_hidden_layers": len(cfg.layer_types),
        "rope_parameters": rope,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "norm_topk_prob": True,
        "num_shared_experts": 1,
        "tie_word_embeddings": False,
        "mask_token_id": mask,
        "eos_token_id": stop,
        "pad_token_id": end,
        "torch_dtype": "bfloat16",
    }
    generation = {"threshold": 0.9, "block_length": DECODE_WIDTH, "mask_token_id": mask}
    generation |= {"eos_token_id": [stop, end]}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
    }
    for name, value in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer_config),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n")
    tok.save(str(folder / "tokenizer.json"))
    weights = {}
    for name, p in model.state_dict().items():
        keep = any(part in name for part in FLOAT32)
        weights[name] = p.to(torch.float32 if keep else torch.bfloat16).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
