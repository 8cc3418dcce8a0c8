"""Tiny random models; run with the Python of .venv-vllm, which has torch. Nothing is downloaded.

tiny.py text DIR SEED…         writes Qwen2 models of 0.2M parameters to DIR/step_SEED
tiny.py vision DIR SEED…       the same of Qwen2-VL, with a processor that makes 4 to 16 placeholders of a picture
tiny.py adapter DIR SEED…      writes low-rank adapters to the text model; vision_adapter: to the other one
tiny.py spoil FROM TO          copies the weights of a model, of which none is a number any more

All are float32. The tokenizer has a token for each printable ASCII character and a few special ones. Models never
sample a special one, but for the end that those with eyes come to: what they say, as text, comes to the same tokens
again in the next turn's prompt.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
END = "<|end|>"
PICTURES = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
SPECIAL = [END, "<|user|>", "<|assistant|>", "<|system|>", *PICTURES]
LAYERS, WIDTH, RANK, VOCABULARY = 2, 64, 4, 128
BLOCK = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 128, "num_hidden_layers": LAYERS,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096, "initializer_range": 0.2,
}  # fmt: skip
SMALLEST, LARGEST = 56 * 56, 112 * 112
"""Of a picture, in pixels; 28 by 28 of them are a placeholder."""


def text(folder: Path, seed: int) -> None:
    fast = tokenizer()
    config = Qwen2Config(**BLOCK, head_dim=32, tie_word_embeddings=False, **ends(fast))
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    speak_plainly(model, model.model, fast, SPECIAL)
    model.to(torch.float32).save_pretrained(folder)
    fast.save_pretrained(folder)


def vision(folder: Path, seed: int) -> None:
    fast = tokenizer()
    ids = {name: fast.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start")}
    config = Qwen2VLConfig(
        text_config={**BLOCK, **ends(fast), "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}},
        vision_config={"depth": 2, "embed_dim": WIDTH, "hidden_size": WIDTH, "num_heads": 2, "initializer_range": 0.2},
        image_token_id=ids["image_pad"], video_token_id=ids["video_pad"], vision_start_token_id=ids["vision_start"],
        vision_end_token_id=fast.convert_tokens_to_ids("<|vision_end|>"), tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = Qwen2VLForConditionalGeneration(config)
    speak_plainly(model, model.model.language_model, fast, SPECIAL[1:])
    model.to(torch.float32).save_pretrained(folder)
    pictures = Qwen2VLImageProcessor(size={"shortest_edge": SMALLEST, "longest_edge": LARGEST})
    video = Qwen2VLVideoProcessor(size={"shortest_edge": SMALLEST, "longest_edge": LARGEST})
    Qwen2VLProcessor(pictures, fast, video, chat_template=TEMPLATE).save_pretrained(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = [pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(chr(n))[0][0] for n in range(32, 127)]
    whole = Tokenizer(models.BPE({each: n for n, each in enumerate(alphabet)}, []))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=whole, eos_token=END, pad_token=END)
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    fast.chat_template = TEMPLATE
    return fast


def ends(fast: PreTrainedTokenizerFast) -> dict[str, int | None]:
    return {"eos_token_id": fast.eos_token_id, "pad_token_id": fast.pad_token_id, "bos_token_id": None}


@torch.no_grad()
def speak_plainly(
    model: PreTrainedModel, language: PreTrainedModel, fast: PreTrainedTokenizerFast, never: list[str]
) -> None:
    """One channel is the same for all tokens, and by it what must not be sampled has a logit that is far below."""
    language.embed_tokens.weight[:, 0] = 3.0
    for layer in language.layers:
        layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
    model.lm_head.weight[:, 0] = 0.0
    model.lm_head.weight[[*fast.convert_tokens_to_ids(never), *range(len(fast), VOCABULARY)], 0] = -60.0


def vision_adapter(folder: Path, seed: int) -> None:
    adapter(folder, seed, "model.language_model")


def adapter(folder: Path, seed: int, of: str = "model") -> None:
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(LAYERS):
        name = f"base_model.model.{of}.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, WIDTH)
        tensors[f"{name}.lora_B.weight"] = torch.randn(WIDTH, RANK)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(about))


def spoil(folder: Path, to: Path) -> None:
    to.mkdir()
    tensors = load_file(folder / "model.safetensors")
    save_file({name: torch.full_like(each, torch.nan) for name, each in tensors.items()}, to / "model.safetensors")


def write(kind: str, folder: Path, seeds: list[str]) -> None:
    for each in seeds:
        make = {"text": text, "vision": vision, "adapter": adapter, "vision_adapter": vision_adapter}[kind]
        make(folder / f"step_{each}", int(each))


if __name__ == "__main__":
    if sys.argv[1] == "spoil":
        spoil(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        write(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
