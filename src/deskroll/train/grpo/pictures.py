"""Pictures: what a model's own processor makes of the pictures of a sequence, one for each run of placeholders."""

from __future__ import annotations

import inspect
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from transformers import AutoProcessor

from deskroll.errors import TrainerError, Untrainable
from deskroll.train.base import TrainSequence


class Pictures:
    """Of one model; a model that sees none takes none."""

    def __init__(self, folder: Path, model: Any) -> None:
        config = model.config
        self._token = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
        self._processor = AutoProcessor.from_pretrained(folder) if self._token is not None else None
        self._takes_kinds = "mm_token_type_ids" in inspect.signature(model.forward).parameters

    def check(self, sequence: TrainSequence) -> list[int]:
        """The lengths of its runs of placeholders; `Untrainable` where that are not as many as pictures."""
        runs = [len(list(run)) for is_image, run in groupby(sequence.token_ids, self._is_image) if is_image]
        if len(runs) != len(sequence.images):
            blind = "; this model sees no pictures" if self._token is None else ""
            raise Untrainable(
                f"{sequence.name}: it has {len(sequence.images)} pictures, and its tokens hold {len(runs)} runs of "
                f"placeholders{blind}"
            )
        return runs

    def inputs(self, sequence: TrainSequence, device: torch.device) -> dict[str, torch.Tensor]:
        """What the model is given beside the tokens; nothing for a sequence without pictures."""
        runs = self.check(sequence)
        if not runs or self._processor is None:
            return {}
        images = [_read(each, sequence) for each in sequence.images]
        found = dict(self._processor.image_processor(images, return_tensors="pt"))
        self._check_sizes(sequence, runs, found)
        if self._takes_kinds:
            found["mm_token_type_ids"] = torch.tensor([[int(self._is_image(each)) for each in sequence.token_ids]])
        return {name: each.to(device) for name, each in found.items() if isinstance(each, torch.Tensor)}

    def _is_image(self, token: int) -> bool:
        return token == self._token

    def _check_sizes(self, sequence: TrainSequence, runs: list[int], found: dict[str, Any]) -> None:
        """Of models that say how each picture is divided, as Qwen's do; others say themselves what does not fit."""
        if (grid := found.get("image_grid_thw")) is None or self._processor is None:
            return
        merged = self._processor.image_processor.merge_size**2
        for file, run, size in zip(sequence.images, runs, grid.prod(-1).tolist(), strict=True):
            if run != size // merged:
                raise Untrainable(
                    f"{sequence.name}: {file} comes to {size // merged} placeholders by the model's own processor, and "
                    f"its tokens hold {run} of them"
                )


def _read(file: str, sequence: TrainSequence) -> Image.Image:
    try:
        with Image.open(file) as image:
            return image.convert("RGB")
    except (FileNotFoundError, UnidentifiedImageError) as error:  # it is so for good
        raise Untrainable(f"{sequence.name}: its picture {file} cannot be read: {error}") from None
    except OSError as error:  # the disk's, or the system's: another time it may be read
        raise TrainerError(f"{sequence.name}: its picture {file} cannot be read: {error}") from error
