"""The smallest random models; run with the Python of .venv-vllm, which has torch. Nothing is downloaded.

small.py DIR     writes DIR/text, DIR/other (the same model with other numbers), DIR/tied (embeddings shared, bfloat16,
                 in two files) and DIR/vision, with pictures DIR/0.png and DIR/1.png
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

SPECIAL = ["<end>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)]
IMAGE = 1
TEMPLATE = (
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% endif %}{% endfor %}{% endif %}<end>{% endfor %}"
)
BLOCK = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512, "initializer_range": 0.4,
    "eos_token_id": 0, "pad_token_id": 0, "bos_token_id": None,
}  # fmt: skip
SIZES = {"shortest_edge": 56 * 56, "longest_edge": 84 * 84}


def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each small letter, for the blank, and five special ones."""
    alphabet = {each: n for n, each in enumerate([*SPECIAL, "\u0120", *LETTERS])}
    whole = Tokenizer(models.BPE(alphabet, []))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=whole, eos_token="<end>", pad_token="<end>")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    fast.chat_template = TEMPLATE
    return fast


def text(folder: Path, seed: int, *, tied: bool = False) -> None:
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**BLOCK, tie_word_embeddings=tied))
    model = model.to(torch.bfloat16 if tied else torch.float32)
    model.save_pretrained(folder, max_shard_size="6KB" if tied else "1GB")
    tokenizer().save_pretrained(folder)


def vision(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    config = Qwen2VLConfig(
        text_config={**BLOCK, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "initializer_range": 0.4},
        image_token_id=IMAGE, video_token_id=2, vision_start_token_id=3, vision_end_token_id=4,
        tie_word_embeddings=False,
    )  # fmt: skip
    Qwen2VLForConditionalGeneration(config).to(torch.float32).save_pretrained(folder)
    parts = Qwen2VLImageProcessor(size=SIZES), tokenizer(), Qwen2VLVideoProcessor(size=SIZES)
    Qwen2VLProcessor(*parts, chat_template=TEMPLATE).save_pretrained(folder)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    text(root / "text", 1)
    text(root / "other", 2)
    text(root / "tied", 3, tied=True)
    vision(root / "vision", 4)
    Image.new("RGB", (60, 60), "navy").save(root / "0.png")
    Image.new("RGB", (80, 110), "orange").save(root / "1.png")
