"""What a direct forward pass says; run with the Python of .venv-vllm, which has torch.

judge.py FILE     reads {"models": [DIR or DIR+ADAPTER …], "conversations": [messages …],
                  "cases": [[prompt ids, completion ids, temperature, [picture …]] …]}
    and prints    {"logprobs": for each model and case, those of the completion's tokens,
                  "best": the same with the likeliest token in each place,
                  "prompts": for each conversation, the ids that the first model's own processor makes of it}

Pictures are files; in messages they are parts {"type": "image", "path": FILE}. A temperature of 0 counts as 1.
"""

import json
import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoProcessor, PreTrainedModel, Qwen2ForCausalLM, Qwen2VLForConditionalGeneration


class Judge:
    """One model."""

    def __init__(self, model: str) -> None:
        folder, _, adapter = model.partition("+")
        sees = json.loads(Path(folder, "config.json").read_text())["model_type"] == "qwen2_vl"
        kind = Qwen2VLForConditionalGeneration if sees else Qwen2ForCausalLM
        self.model: PreTrainedModel = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.processor = AutoProcessor.from_pretrained(folder)
        if adapter:
            add_adapter(self.model, Path(adapter))

    def logits(self, prompt: list[int], completion: list[int], pictures: list[str]) -> torch.Tensor:
        ids = torch.tensor([prompt + completion])
        given = {}
        if pictures:
            found = self.processor.image_processor([Image.open(each) for each in pictures], return_tensors="pt")
            is_picture = (ids == self.model.config.image_token_id).int()
            given = {**found, "mm_token_type_ids": is_picture}
        return self.model(ids, **given).logits[0, len(prompt) - 1 : -1]

    def judge(self, prompt: list[int], completion: list[int], temperature: float, pictures: list[str]) -> tuple:
        logits = self.logits(prompt, completion, pictures)
        values = (logits / (temperature or 1.0)).log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        return values.tolist(), logits.argmax(-1).tolist()

    def prompt(self, messages: list[dict]) -> list[int]:
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
        pictures = [Image.open(part["path"]) for part in parts if part["type"] == "image"]
        made = self.processor(text=text, images=pictures) if pictures else self.processor(text=text)
        ids = made["input_ids"]
        return ids[0] if isinstance(ids[0], list) else ids


@torch.no_grad()
def add_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Its weights become those of the model itself."""
    about = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    for name, low in tensors.items():
        if name.endswith("lora_A.weight"):
            high = tensors[name.replace("lora_A", "lora_B")]
            place = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            model.get_submodule(place).weight += about["lora_alpha"] / about["r"] * high @ low


@torch.inference_mode()
def main(file: Path) -> None:
    asked = json.loads(file.read_text())
    judges = [Judge(folder) for folder in asked["models"]]
    found = [[judge.judge(*case) for case in asked["cases"]] for judge in judges]
    said = {
        "logprobs": [[values for values, _ in cases] for cases in found],
        "best": [[best for _, best in cases] for cases in found],
        "prompts": [list(map(int, judges[0].prompt(messages))) for messages in asked["conversations"]],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
