"""A causal language model of a few thousand random weights, with tokenizer and chat template, made without torch."""

import json
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny_model(folder: Path, hidden: int = 16, layers: int = 1, heads: int = 2, context: int = 256) -> Path:
    """Write a Llama with byte-level tokens, which reads `context` of them, into `folder`."""
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    vocab, width = tokenizer.get_vocab_size(), 2 * hidden
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "chat_template": TEMPLATE,
            }
        )
    )
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": hidden,
                "intermediate_size": width,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "num_key_value_heads": heads,
                "vocab_size": vocab,
                "max_position_embeddings": context,
                "tie_word_embeddings": True,
                "eos_token_id": end,
                "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
                "torch_dtype": "float32",
            }
        )
    )
    random = np.random.default_rng(0)

    def weight(rows: int, columns: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        return random.normal(0, 0.1, (rows, columns)).astype(np.float32)

    tensors = {"model.embed_tokens.weight": weight(vocab, hidden), "model.norm.weight": np.ones(hidden, np.float32)}
    for number in range(layers):
        layer = f"model.layers.{number}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            tensors[f"{layer}self_attn.{name}.weight"] = weight(hidden, hidden)
        for name, shape in {
            "gate_proj": (width, hidden),
            "up_proj": (width, hidden),
            "down_proj": (hidden, width),
        }.items():
            tensors[f"{layer}mlp.{name}.weight"] = weight(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}{name}.weight"] = np.ones(hidden, np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
