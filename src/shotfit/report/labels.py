"""How methods and datasets are written in tables and figures."""

METHODS = {
    "zero_shot": "Zero-shot CLIP",
    "coop": "CoOp",
    "cocoop": "CoCoOp",
    "tip_adapter": "Tip-Adapter",
    "tip_adapter_f": "Tip-Adapter-F",
    "clip_adapter": "CLIP-Adapter",
    "plot_pp": "PLOT++",
    "kgcoop": "KgCoOp",
    "taskres": "TaskRes",
    "maple": "MaPLe",
    "prograd": "ProGrad",
    "lp_pp": "LP++",
    "lora": "LoRA",
    "clip_lora": "CLIP-LoRA",
    "mma": "MMA",
    "ivlp": "IVLP",
    "promptsrc": "PromptSRC",
    "mmrl": "MMRL",
    "mmrl_pp": "MMRL++",
    "tcp": "TCP",
    "clip_svd": "CLIP-SVD",
    "clipfit": "CLIPFit",
    "layernorm": "LayerNorm",
    "bitfit": "BitFit",
}

DATASETS = {
    "average": "Average",
    "imagenet": "ImageNet",
    "caltech101": "Caltech101",
    "oxford_flowers": "Flowers",
    "oxford_pets": "Pets",
    "stanford_cars": "Cars",
    "food101": "Food101",
    "fgvc_aircraft": "Aircraft",
    "sun397": "SUN397",
    "dtd": "DTD",
    "eurosat": "EuroSAT",
    "ucf101": "UCF101",
}


def method_label(row: str) -> str:
    """The written name of a row: `2sfs_lora[M=100]` is "2SFS (LoRA) [M=100]"."""
    name, bracket, rest = row.partition("[")
    inner = name.removeprefix("2sfs_")
    label = METHODS.get(inner, inner)
    if inner != name:
        label = f"2SFS ({label})"
    return f"{label} [{rest}" if bracket else label


def dataset_label(name: str) -> str:
    """The written name of a dataset; unknown ones with spaces for underscores."""
    return DATASETS.get(name, name.replace("_", " "))
