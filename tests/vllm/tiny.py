"""Tiny random models, and what they say of tokens; run with the Python of .venv-vllm, which has torch.

tiny.py make DIR SEED          writes a Qwen2 text model of 0.2M parameters, float32, with a byte tokenizer
tiny.py adapter DIR SEED       writes a low-rank adapter to it
tiny.py judge FILE             reads {"models": [DIR…], "cases": [[prompt ids, completion ids, temperature]…]} and
                               prints, for each model and case, the log-probabilities of the completion
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
LAYERS, WIDTH, RANK = 2, 64, 4


def make(folder: Path, seed: int) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({each: n for n, each in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIAL[0], pad_token=SPECIAL[0])
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[1:]})
    fast.chat_template = TEMPLATE
    config = Qwen2Config(
        vocab_size=320, hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=False,
        eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id, bos_token_id=None, initializer_range=0.2,
        torch_dtype="float32",
    )  # fmt: skip
    torch.manual_seed(seed)
    Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    fast.save_pretrained(folder)


def adapter(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, WIDTH)
        tensors[f"{name}.lora_B.weight"] = torch.randn(WIDTH, RANK)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(about))


@torch.inference_mode()
def judge(file: Path) -> None:
    asked = json.loads(file.read_text())
    found = []
    for folder in asked["models"]:
        model = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        found.append([logprobs(model, *case) for case in asked["cases"]])
    print(json.dumps(found))


def logprobs(model: Qwen2ForCausalLM, prompt: list[int], completion: list[int], temperature: float) -> list[float]:
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


if __name__ == "__main__":
    if sys.argv[1] == "judge":
        judge(Path(sys.argv[2]))
    else:
        {"make": make, "adapter": adapter}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
